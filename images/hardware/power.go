//go:build linux

package hardware

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"
)

// keyPower is KEY_POWER of the kernel's input event codes, evKey its type EV_KEY.
const (
	evKey    = 1
	keyPower = 116
)

// inputEvent is struct input_event of a 64-bit kernel.
type inputEvent struct {
	_          [16]byte // when
	Type, Code uint16
	Value      int32
}

// AwaitPowerKey returns when the power button that an input device is, or has, is pressed.
func AwaitPowerKey(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open input device: %w", err)
	}
	defer func() { _ = f.Close() }()
	buf := make([]byte, 64*int(unsafe.Sizeof(inputEvent{})))
	for {
		n, err := f.Read(buf)
		if err != nil {
			return fmt.Errorf("read input device: %w", err)
		}
		events := make([]inputEvent, n/int(unsafe.Sizeof(inputEvent{})))
		if err := binary.Read(bytes.NewReader(buf[:n]), binary.LittleEndian, events); err != nil {
			return fmt.Errorf("decode input event: %w", err)
		}
		for _, e := range events {
			if e.Type == evKey && e.Code == keyPower && e.Value == 1 {
				return nil
			}
		}
	}
}
