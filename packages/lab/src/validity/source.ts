// The published study that several rules come from, in the words that findings use for it.

export const publishedStudy = "the published DDP study whose own files contradict it";
