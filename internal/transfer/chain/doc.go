// Package chain reads a disk that is in several files, a whole one and increments of it, as one: each part of the disk is read
// from the newest file that has it, and from no other. The files come as one blob, one behind the other with the newest first,
// and as the image in it, so that a transfer that can read an image from a blob can read a chain: in one pass, with large reads
// in the order of the files, and without room beside the target.
//
// It does not know where the files are, nor how it is known that they belong together, and it never opens a file that a file
// names.
package chain
