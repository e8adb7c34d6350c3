package render

// MakeEmpty has the launcher make a disk of that size in the volume if there is none.
func (m *Machine) MakeEmpty(volume string, size int64) {
	if m.Empty == nil {
		m.Empty = map[string]int64{}
	}
	m.Empty[volume] = size
}
