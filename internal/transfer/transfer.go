// Package transfer is the data plane: it carries out one task.Task, from the bytes at a source to a disk (or a directory)
// that is on stable storage, in one pass, in bounded memory, and so that a run that was killed can be continued.
//
// It does not know Kubernetes, and it decides nothing about retries: a Report says what happened, and whoever started the
// worker decides what comes next. The protocol between two workers that clone a volume is described in package wire.
package transfer
