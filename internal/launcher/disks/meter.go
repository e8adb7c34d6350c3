package disks

import (
	"bytes"
	"regexp"
	"strconv"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// Meter reads the progress that qemu-img -p prints: "    (12.34/100%)" and a carriage return.
type Meter struct {
	Say  func(hundredths int64)
	rest []byte
}

var share = regexp.MustCompile(`\((\d+)\.(\d\d)/100%\)`)

func (m *Meter) Write(text []byte) (int, error) {
	m.rest = append(m.rest, text...)
	if all := share.FindAllSubmatch(m.rest, -1); len(all) > 0 {
		last := all[len(all)-1]
		n, err := strconv.ParseInt(string(last[1])+string(last[2]), 10, 64)
		if err == nil {
			m.Say(n)
		}
	}
	if i := bytes.LastIndexByte(m.rest, '\r'); i >= 0 {
		m.rest = m.rest[i+1:]
	}
	if len(m.rest) > 1<<10 {
		m.rest = nil
	}
	return len(text), nil
}

// wholly reports whether a copy holds all data of its master in the end.
func wholly(mode kubevirt.CopyMode) bool {
	return mode == kubevirt.CopyOnRead || mode == kubevirt.CopyClone
}
