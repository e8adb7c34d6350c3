// Package timetable has the moments of schedules, and which of the things that were made at them are kept.
//
// It is arithmetic: it does not know the time, nor what is made.
package timetable

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Times are the moments of a schedule.
type Times struct {
	cron cron.Schedule
	zone *time.Location
}

// fields is the syntax of CronJobs: five fields, or a word such as @daily.
var fields = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// Parse reads a schedule and its time zone.
func Parse(text, zone string) (Times, error) {
	where, err := time.LoadLocation(zone)
	if err != nil || strings.EqualFold(zone, "local") {
		return Times{}, fmt.Errorf("there is no time zone %q: use a name of the IANA database, such as Europe/Berlin", zone)
	}
	switch {
	case strings.Contains(text, "TZ="):
		return Times{}, fmt.Errorf("the schedule %q names a time zone: use the field timeZone", text)
	case strings.HasPrefix(text, "@every"):
		return Times{}, errors.New("@every has no fixed times: use five fields, such as */15 * * * *")
	}
	when, err := fields.Parse(text)
	if err != nil {
		return Times{}, fmt.Errorf("the schedule %q cannot be read: %w", text, err)
	}
	if t := (Times{when, where}); t.Next(time.Unix(0, 0)).IsZero() {
		return Times{}, fmt.Errorf("the schedule %q never comes", text)
	}
	return Times{when, where}, nil
}

// Next is the first moment after at; zero if there is none.
func (t Times) Next(at time.Time) time.Time {
	next := t.cron.Next(at.In(t.zone))
	if next.IsZero() {
		return time.Time{}
	}
	return next.UTC()
}

// Latest is the last moment that is after since and not after now; zero if there is none.
func (t Times) Latest(since, now time.Time) time.Time {
	var last time.Time
	for at := t.Next(since); !at.IsZero() && !at.After(now); at = t.Next(at) {
		last = at
	}
	return last
}

// Due is when there should be another good one after the one of a moment: when the moment after the next comes, or a day after the next one if that is sooner.
// A single failure of something frequent is made good by the next; of something rare it is not waited for.
func (t Times) Due(last time.Time) time.Time {
	next := t.Next(last)
	after := t.Next(next)
	if day := next.Add(24 * time.Hour); !next.IsZero() && (after.IsZero() || day.Before(after)) {
		return day
	}
	return after
}
