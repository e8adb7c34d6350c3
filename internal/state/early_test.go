package state

import "testing"

func TestEarlyText(t *testing.T) {
	for want, e := range map[string]Early{
		"a machine can start with it, 0 % local":                                       {},
		"booted, 12 % local, 31 MB/s, 4 min left":                                      {Booted: true, Percent: 12.3, Rate: 31e6, Left: 31e6 * 230},
		"booted, 12 % local, 0.4 MB/s, 1 h 6 min left":                                 {Booted: true, Percent: 12.3, Rate: 4e5, Left: 4e5 * 4000},
		"a machine can start with it, 99 % local, 50 MB/s, 1 s left":                   {Percent: 99, Rate: 50e6, Left: 1},
		"booted, 50 % local, 9.0 MB/s":                                                 {Booted: true, Percent: 50, Rate: 9e6},
		"booted, 50 % local; the source is waited for: web.example refuses connection": {Booted: true, Percent: 50, Rate: 9e6, Left: 5, Away: "web.example refuses connection"},
	} {
		if got := e.Text(); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}
