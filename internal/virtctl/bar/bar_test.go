package bar

import (
	"strings"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

func TestLine(t *testing.T) {
	for _, c := range []struct {
		done, total int64
		left        time.Duration
		want        string
	}{
		{0, 1 << 20, 0, " 0.00 MiB / 1.00 MiB [>------------------] 0.00% 0s"},
		{334632058, 334632058, 0, " 319.13 MiB / 319.13 MiB [=============] 100.00% 0s"},
		{1 << 19, 1 << 20, 65 * time.Second, " 0.50 MiB / 1.00 MiB [========>-------] 50.00% 1m5s"},
		{999999, 1000000, time.Second, " 0.95 MiB / 0.95 MiB [=================>] 99.99% 1s"}, // not done is never 100
		{0, 0, 0, " 0.00 MiB / 0.00 MiB [=================] 100.00% 0s"},
		{5 << 40, 4 << 40, 0, " 5242880.00 MiB / 4194304.00 MiB [==========] 100.00% 0s"},
	} {
		if got := MiB(c.done, c.total, c.left, 51); got != c.want {
			t.Errorf("%d of %d:\n%q, want\n%q", c.done, c.total, got, c.want)
		}
	}
}

func TestOneLineWithoutATerminal(t *testing.T) {
	var out strings.Builder
	b := Bytes(&out)
	for done := int64(0); done <= 8<<20; done += 1 << 20 {
		b.Set(done, 8<<20)
	}
	b.End()
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, " 8.00 MiB / 8.00 MiB [===") {
		t.Errorf("printed %q", got)
	}
}

func TestTimeLeftIsThatOfThisRun(t *testing.T) {
	var out strings.Builder
	clock := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	b := Percent(&out)
	b.live, b.clock = true, clock
	b.Set(50, 100) // resumed: the first half was sent some other day
	clock.SetTime(time.Unix(10, 0))
	b.Set(75, 100)
	if got := out.String(); !strings.HasSuffix(got, " 75.00% 10s\x1b[K") {
		t.Errorf("drew %q", got)
	}
}
