package state

import (
	"fmt"
	"strings"
	"time"
)

// Early is the state of a volume that a machine can use before it is full.
type Early struct {
	Booted  bool // a machine has it
	Percent float64
	Rate    int64  // bytes a second
	Left    int64  // bytes that are not there yet; 0: not known
	Away    string // why its source is waited for; empty: it answers
}

// EarlyReason names a row of the table for volumes that are used before they are full.
type EarlyReason string

// The reasons. Those that begin with Late are why no machine can have the volume before it is full.
const (
	EarlyServed EarlyReason = "served"
	EarlyBooted EarlyReason = "booted"
	EarlyAway   EarlyReason = "source away"

	LateSource  EarlyReason = "source"
	LateClone   EarlyReason = "clone"
	LateArchive EarlyReason = "archive"
	LateBlock   EarlyReason = "block"
	LateOnePod  EarlyReason = "one pod"
	LatePrime   EarlyReason = "populated"
	LateImage   EarlyReason = "image"
)

// EarlyRow is a row of that table.
type EarlyRow struct {
	Reason EarlyReason
	// Message: {percent}, {rate} and {left} are the progress, {detail} is the worker's message.
	Message string
}

const late = "no machine can start with it before it is full: "

var earlyTable = []EarlyRow{
	{EarlyServed, "a machine can start with it, {percent} % local{rate}{left}"},
	{EarlyBooted, "booted, {percent} % local{rate}{left}"},
	{EarlyAway, "the source is waited for: {detail}"},
	{LateSource, late + "it is not imported from a server"},
	{LateClone, late + "its storage makes it, and no worker"},
	{LateArchive, late + "it is an archive and no disk"},
	{LateBlock, late + "its volumeMode is Block, which has no room for notes of what the guest writes; use Filesystem"},
	{LateOnePod, late + "its access mode ReadWriteOncePod keeps the machine from it while it is filled; use ReadWriteOnce"},
	{LatePrime, late + "its claim gets its volume only when that is full; use a DataVolume"},
	{LateImage, late + "{detail}"},
}

// EarlyRows returns all of them.
func EarlyRows() []EarlyRow { return append([]EarlyRow(nil), earlyTable...) }

// Text returns the row's message.
func (r EarlyReason) Text(detail string) string {
	for _, row := range earlyTable {
		if row.Reason == r {
			return strings.ReplaceAll(row.Message, "{detail}", detail)
		}
	}
	return string(r)
}

// Text is "booted, 12 % local, 31 MB/s, 4 min left".
func (e Early) Text() string {
	reason := EarlyServed
	if e.Booted {
		reason = EarlyBooted
	}
	rate, left := "", ""
	if e.Rate > 0 && e.Away == "" {
		rate = fmt.Sprintf(", %.1f MB/s", float64(e.Rate)/1e6)
		if e.Rate >= 1e7 {
			rate = fmt.Sprintf(", %d MB/s", e.Rate/1e6)
		}
		if e.Left > 0 {
			left = ", " + span(time.Duration(e.Left/e.Rate)*time.Second) + " left"
		}
	}
	text := strings.NewReplacer("{percent}", fmt.Sprintf("%.0f", e.Percent), "{rate}", rate, "{left}", left).Replace(reason.Text(""))
	if e.Away != "" {
		text += "; " + EarlyAway.Text(e.Away)
	}
	return text
}

// span returns a time as people say it: one unit, or two where the first is hours.
func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", max(1, d/time.Second))
	case d < time.Hour:
		return fmt.Sprintf("%d min", (d+30*time.Second)/time.Minute)
	}
	return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
}
