// The published study that several rules cite.

export const publishedStudy = "the published DDP study whose own files contradict it";
