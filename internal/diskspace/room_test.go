package diskspace

import "testing"

func TestFit(t *testing.T) {
	for _, c := range []struct{ asked, free, want int64 }{
		{1 << 20, 1 << 30, 1 << 20},       // there is room
		{1 << 20, 1 << 20, 1036288},       // a hundredth less, in whole pages
		{1<<20 - 8192, 1 << 20, 1036288},  // what is asked for would fit, with nothing left
		{12345, 1 << 20, 12345},           // a size that was asked for is not rounded
		{1 << 20, 0, 0}, {1 << 20, 50, 0}, // no page is free
		{1 << 62, 1<<63 - 1, 1 << 62}, // no overflow
	} {
		if got := Fit(c.asked, c.free); got != c.want {
			t.Errorf("Fit(%d, %d) is %d, not %d", c.asked, c.free, got, c.want)
		}
	}
}
