// Package observed reads everything that the next step of an instance depends on, once, into one value: Instance. Controllers make facts of
// it and let internal/decide decide.
//
// It writes nothing. What it asks of launchers are questions that change nothing.
package observed

import "github.com/berth-vm/berth/internal/controller/diskstate"

// Reader reads instances.
type Reader struct {
	diskstate.Reader
	Options Options
	Ask     Asker
}
