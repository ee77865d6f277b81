// Text from other processes, made safe for terminals.

/**
 * Characters that a terminal obeys instead of printing: controls, and those that reverse or hide text. Line breaks and
 * tabs are allowed in texts.
 */
const unprintable = /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/u;
const unprintables = new RegExp(`(?![\\n\\t])${unprintable.source}`, "gu");

/** Whether a name has none of these characters. */
export const isPrintable = (name: string): boolean => !unprintable.test(name);

/** The text with these characters replaced. */
export const printable = (text: string): string => text.replace(unprintables, "?");
