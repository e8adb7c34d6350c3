package timetable

import (
	"strings"
	"testing"
	"time"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	if text == "" {
		return time.Time{}
	}
	when, err := time.Parse("2006-01-02 15:04", text)
	if err != nil {
		t.Fatal(err)
	}
	return when
}

// TestTimes: the moments of schedules, in their time zone, also where clocks are changed.
func TestTimes(t *testing.T) {
	for name, row := range map[string]struct{ schedule, zone, since, now, latest, next, due string }{
		"minutes":         {"* * * * *", "", "2026-01-01 10:00", "2026-01-01 10:03", "2026-01-01 10:03", "2026-01-01 10:04", "2026-01-01 10:05"},
		"nothing yet":     {"0 2 * * *", "", "2026-01-01 03:00", "2026-01-01 10:03", "", "2026-01-02 02:00", ""},
		"daily":           {"@daily", "", "2026-01-01 03:00", "2026-01-02 10:03", "2026-01-02 00:00", "2026-01-03 00:00", "2026-01-04 00:00"},
		"weekly":          {"@weekly", "", "2026-01-01 03:00", "2026-01-08 10:03", "2026-01-04 00:00", "2026-01-11 00:00", "2026-01-12 00:00"},
		"zone":            {"0 2 * * *", "Asia/Tokyo", "2026-01-01 00:00", "2026-01-02 10:03", "2026-01-01 17:00", "2026-01-02 17:00", "2026-01-03 17:00"},
		"summer time":     {"0 2 * * *", "Europe/Berlin", "2026-10-24 00:00", "2026-10-26 10:03", "2026-10-26 01:00", "2026-10-27 01:00", "2026-10-28 01:00"},
		"an hour skipped": {"30 2 * * *", "Europe/Berlin", "2026-03-28 12:00", "2026-03-29 12:00", "", "2026-03-30 00:30", ""},
	} {
		s, err := Parse(row.schedule, row.zone)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Latest(at(t, row.since), at(t, row.now)); !got.Equal(at(t, row.latest)) {
			t.Errorf("%s: the latest is %s, want %s", name, got, row.latest)
		}
		if got := s.Next(at(t, row.now)); !got.Equal(at(t, row.next)) {
			t.Errorf("%s: the next is %s, want %s", name, got, row.next)
		}
		if got := s.Due(at(t, row.latest)); row.due != "" && !got.Equal(at(t, row.due)) {
			t.Errorf("%s: another is due at %s, want %s", name, got, row.due)
		}
	}
}

// TestNoSchedule: what is none says why.
func TestNoSchedule(t *testing.T) {
	for _, row := range [][3]string{
		{"", "", "cannot be read"}, {"* * * *", "", "cannot be read"}, {"TZ=UTC * * * * *", "", "use the field timeZone"}, {"CRON_TZ=UTC @daily", "", "use the field timeZone"},
		{"@every 1h", "", "no fixed times"}, {"0 0 30 2 *", "", "never comes"}, {"@daily", "Mars/Olympus", "no time zone"}, {"@daily", "Local", "no time zone"},
		{"@daily", "../../etc/passwd", "no time zone"},
	} {
		if _, err := Parse(row[0], row[1]); err == nil || !strings.Contains(err.Error(), row[2]) {
			t.Errorf("%q %q: %v", row[0], row[1], err)
		}
	}
}

// FuzzParse: whatever is written as a schedule is refused, or has moments that come one after the other.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"* * * * *", "*/7 3-9/2 1,15 * MON-FRI", "@monthly", "0 0 29 2 *", "60 * * * *", "TZ=a@daily", "@"} {
		f.Add(s, "Europe/Berlin", int64(1700000000))
	}
	f.Fuzz(func(t *testing.T, text, zone string, from int64) {
		s, err := Parse(text, zone)
		if err != nil {
			return
		}
		now := time.Unix(from%(1<<33), 0)
		next := s.Next(now)
		if !next.IsZero() && !next.After(now) {
			t.Errorf("%q: %s comes before %s", text, next, now)
		}
		if last := s.Latest(now.Add(-24*time.Hour), now); !last.IsZero() && (last.After(now) || !last.After(now.Add(-24*time.Hour))) {
			t.Errorf("%q: %s is not in the day before %s", text, last, now)
		}
	})
}
