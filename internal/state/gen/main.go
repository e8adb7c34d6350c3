// Command gen writes the page of states from internal/state's table. It does not know what a state means.
package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"github.com/berth-vm/berth/internal/state"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: gen PAGE.md")
	}
	var page bytes.Buffer
	write(&page)
	if err := os.WriteFile(os.Args[1], page.Bytes(), 0o600); err != nil {
		log.Fatalf("write the page of states: %v", err)
	}
}

// write writes the page to w, which is memory and cannot fail.
func write(w io.Writer) {
	fmt.Fprint(w, "# What a DataVolume can say\n\n"+
		"Generated from internal/state by `go generate ./internal/state`; do not edit.\n\n"+
		"Phase, conditions and event of a DataVolume come from one row. The event has the row's reason and is a warning "+
		"where the table\nsays so; where a second word stands beside that, the same event is told under that reason too. `Running` is true only "+
		"where it says\n`Pod is running`; it says `ChecksumError` instead of `Error` after a wrong checksum; words in parentheses are its message where that is not the row's. `Ready` is true only in "+
		"`Succeeded`, and\nhas no reason there.\n\n"+
		"| reason | phase | ready | event | Running | Bound | message |\n|---|---|---|---|---|---|---|\n")
	rows(w, state.Rows())
	fmt.Fprint(w, "\n## What a claim that is populated without a DataVolume can say\n\n"+
		"All of the above that is about filling, and what follows. It is said in events of the claim and in its annotations: see\n"+
		"[populators](../flows/populators.md).\n\n"+
		"| reason | phase | ready | event | Running | Bound | message |\n|---|---|---|---|---|---|---|\n")
	rows(w, state.Populations())
	fmt.Fprint(w, "\n## What a volume says that a machine may start with before it is full\n\n"+
		"Besides the above, where {detail} is: see [streaming](../flows/streaming.md).\n\n"+
		"| what | message |\n|---|---|\n")
	for _, r := range state.EarlyRows() {
		fmt.Fprintf(w, "| %s | %s |\n", r.Reason, r.Message)
	}
	machines(w)
}

// machines are the tables of the machine side.
func machines(w io.Writer) {
	fmt.Fprint(w, "\n## What a machine can say\n\n"+
		"Status, the conditions Ready and Failure, the phase of its instance and the event come from one row. Failure is only there with a reason.\n\n"+
		"| reason | status | instance | ready | Failure | event | message |\n|---|---|---|---|---|---|---|\n")
	for _, r := range state.MachineRows() {
		if r.Reason == state.AsInstance {
			continue
		}
		event := kind(r.Warn)
		if r.Quiet {
			event = "none"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %t | %s | %s | %s |\n", r.Reason, r.Status, r.Instance, r.Ready, r.Failure, event, r.Message)
	}
	fmt.Fprint(w, "\n## What a snapshot or a restore of a machine can say\n\n"+
		"| reason | ends it | event | message |\n|---|---|---|---|\n")
	ends := map[state.End]string{state.GoingOn: "", state.Well: "well", state.Badly: "badly"}
	for _, r := range state.SnapshotRows() {
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", r.Reason, ends[r.End], kind(r.Warn), r.Message)
	}
	fmt.Fprint(w, "\n## What a clone of a machine can say\n\n"+
		"Phase, the conditions Ready and Progressing and the event come from one row: see [clones of machines](../flows/vm-clones.md).\n\n"+
		"| reason | phase | event | message |\n|---|---|---|---|\n")
	for _, r := range state.CloneRows() {
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", r.Reason, r.Phase, kind(r.Warn), r.Message)
	}
	fmt.Fprint(w, "\n## What an export can say\n\n"+
		"Phase, the conditions Ready and PVCReady and the event come from one row: see [export](../flows/export.md).\n\n"+
		"| reason | phase | PVCReady | event | message |\n|---|---|---|---|---|\n")
	for _, r := range state.ExportRows() {
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", r.Reason, r.Phase, r.Claims, kind(r.Warn), r.Message)
	}
	fmt.Fprint(w, "\n## What a backup of a machine can say\n\n"+
		"The condition that is true, its reason and the event come from one row: see [backup](../flows/backup.md).\n\n"+
		"| event's reason | condition | reason | event | message |\n|---|---|---|---|---|\n")
	for _, r := range state.BackupRows() {
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", r.Reason, r.Condition, r.Upstream, kind(r.Warn), r.Message)
	}
	fmt.Fprint(w, "\n## What a schedule can say of a machine\n\n"+
		"In the entry of the machine in its status, in the condition UpToDate, and in an event: see [schedules](../flows/schedules.md).\n\n"+
		"| reason | up to date | event | message |\n|---|---|---|---|\n")
	for _, r := range state.ScheduleRows() {
		fmt.Fprintf(w, "| %s | %t | %s | %s |\n", r.Reason, r.UpToDate, kind(r.Warn), r.Message)
	}
	moves(w)
}

// moves are the tables about machines that move.
func moves(w io.Writer) {
	fmt.Fprint(w, "\n## What a migration can say\n\n"+
		"Phase, the Ready condition and the event come from one row: see [migration](../flows/migration.md).\n\n"+
		"| reason | phase | event | message |\n|---|---|---|---|\n")
	for _, r := range state.MigrationRows() {
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", r.Reason, r.Phase, kind(r.Warn), r.Message)
	}
	fmt.Fprint(w, "\n## What is said of a guest that is to leave its node\n\n"+
		"In the condition EvictionRequested of its instance, in an event, and in the answer to a request to evict its pod.\n\n"+
		"| reason | event | message |\n|---|---|---|\n")
	for _, r := range state.EvacuationRows() {
		fmt.Fprintf(w, "| %s | %s | %s |\n", r.Reason, kind(r.Warn), r.Message)
	}
	fmt.Fprint(w, "\n## Why a machine cannot move\n\n"+
		"In the conditions LiveMigratable and StorageLiveMigratable of its instance; several of them are joined.\n\n"+
		"| reason | storage | message |\n|---|---|---|\n")
	for _, r := range state.FixedRows() {
		fmt.Fprintf(w, "| %s | %t | %s |\n", r.Reason, r.Storage, r.Message)
	}
	updates(w)
}

// updates are the tables about volumes that are changed while a machine runs.
func updates(w io.Writer) {
	fmt.Fprint(w, "\n## What is said of volumes that are changed while a machine runs\n\n"+
		"In the condition VolumesChange of its instance; in RestartRequired of the machine if only a restart brings it about.\n\n"+
		"| reason | restart | message |\n|---|---|---|\n")
	for _, r := range state.UpdateRows() {
		fmt.Fprintf(w, "| %s | %t | %s |\n", r.Reason, r.Restart, r.Message)
	}
	fmt.Fprint(w, "\n## Why the disk of a changed volume is not sent\n\n| message |\n|---|\n")
	for _, r := range state.UpdateCauseRows() {
		fmt.Fprintf(w, "| %s |\n", r.Message)
	}
}

func rows(w io.Writer, all []state.Row) {
	for _, r := range all {
		s := state.Of(r.Reason)
		fmt.Fprintf(w, "| %s | %s | %t | %s | %s | %s | %s |\n", r.Reason, r.Phase, r.Ready, told(r), running(s),
			or(string(r.Bound), "as the claim"), strings.ReplaceAll(r.Message, "|", `\|`))
	}
}

// told returns the kind of the event, and its second reason.
func told(r state.Row) string {
	if r.Told == "" {
		return kind(r.Warn)
	}
	return kind(r.Warn) + ", " + string(r.Told)
}

// running returns the reason of the Running condition, and its message where that is not the row's.
func running(s state.State) string {
	if s.RunText == "" {
		return s.RunReason()
	}
	return s.RunReason() + " (" + s.RunText + ")"
}

func kind(warn bool) string {
	if warn {
		return "Warning"
	}
	return "Normal"
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
