// Package cron decides what to do next for a DataImportCron. Polling the source and importing from it happen at the same time,
// so there are two tables of rules; Decide is a pure function from facts to a plan of both.
//
// It does not know Kubernetes objects, clients, schedules or the time.
package cron

import (
	"slices"

	"github.com/berth-vm/berth/internal/decide"
)

// Poll is the question to the source.
type Poll int

// The situations of a poll. Answered and Unanswered are over, with and without a digest.
const (
	NoPoll Poll = iota
	Asking
	Answered
	Unanswered
	Ending // its pod is being deleted
)

// Import is the import of the version that the source had last.
type Import int

// The situations of an import. Unknown: the source has never said what it has.
const (
	Unknown Import = iota
	Missing
	Scheduled
	Importing
	Broken
	Imported // it is there, and to be kept as a snapshot that is not
	Storing  // the snapshot is being taken
	Ready
)

// Facts is everything a decision depends on.
type Facts struct {
	Poll Poll
	// PollDue: the schedule says that it is time to ask.
	PollDue bool
	// Noted: what the poll came to is recorded.
	Noted  bool
	Import Import
	// Switched: the managed names stand for this import.
	Switched bool
	// Surplus: there are more imports than should be kept, or a claim whose snapshot is kept instead.
	Surplus bool
	// Taken: an object of a managed name has another owner.
	Taken bool
	// Unreadable: the schedule or the source makes no sense.
	Unreadable bool
}

// Action is a step of a plan. Each is safe to repeat.
type Action string

// The actions.
const (
	StartPoll    Action = "StartPoll"
	NotePoll     Action = "NotePoll" // record what it came to
	EndPoll      Action = "EndPoll"
	CreateImport Action = "CreateImport"
	TakeSnapshot Action = "TakeSnapshot" // of the import, to be kept in its stead
	Switch       Action = "Switch"       // make the managed names stand for the import
	Collect      Action = "Collect"      // remove the imports that are too many
)

// Reason is the reason of the conditions, in the words of CDI's clients where CDI has the state.
type Reason string

// The reasons.
const (
	NoDigest          Reason = "NoDigest"
	ImportProgressing Reason = "ImportProgressing"
	Outdated          Reason = "Outdated"
	UpToDate          Reason = "UpToDate"
	AlreadyManaged    Reason = "ErrDataSourceAlreadyManaged"
	Invalid           Reason = "InvalidSpec"
)

// Plan is a decision: what to do, in this order, and what to say.
type Plan struct {
	Rules []string
	Do    []Action
	Say   Reason
}

type rule = decide.Rule[Facts, Action, Reason]

// Decide finds the first rule of each table that holds.
func Decide(f Facts) Plan {
	poll, source := decide.First(polls, f), decide.First(imports, f)
	return Plan{Rules: []string{poll.Rule, source.Rule}, Do: slices.Concat(poll.Do, source.Do), Say: source.State}
}

// polls are the rules about polling the source.
var polls = []rule{
	{Name: "what makes no sense is not asked for", When: func(f Facts) bool { return f.Unreadable && f.Poll == NoPoll }},
	{Name: "an answer is noted before it goes",
		When: func(f Facts) bool { return (f.Poll == Answered || f.Poll == Unanswered) && !f.Noted }, Do: []Action{NotePoll}},
	{Name: "a noted answer is no longer needed",
		When: func(f Facts) bool { return f.Poll == Answered || f.Poll == Unanswered }, Do: []Action{EndPoll}},
	{Name: "one question at a time", When: func(f Facts) bool { return f.Poll != NoPoll }},
	{Name: "the source is asked when it is time", When: func(f Facts) bool { return f.PollDue }, Do: []Action{StartPoll}},
	{Name: "it is not time yet", When: func(Facts) bool { return true }},
}

// imports are the rules for an answer of the source.
var imports = []rule{
	{Name: "what makes no sense is said", When: func(f Facts) bool { return f.Unreadable }, Say: Invalid},
	{Name: "a name of somebody else is left alone", When: func(f Facts) bool { return f.Taken }, Say: AlreadyManaged},
	{Name: "nothing is imported before it is known what", When: func(f Facts) bool { return f.Import == Unknown }, Say: NoDigest},
	{Name: "a new version is imported",
		When: func(f Facts) bool { return f.Import == Missing }, Do: []Action{CreateImport}, Say: Outdated},
	{Name: "an import is waited for",
		When: func(f Facts) bool { return f.Import == Scheduled || f.Import == Importing }, Say: ImportProgressing},
	{Name: "an import that failed leaves the last one in place",
		When: func(f Facts) bool { return f.Import == Broken }, Say: Outdated},
	{Name: "an import is kept as a snapshot where its storage is better at that",
		When: func(f Facts) bool { return f.Import == Imported }, Do: []Action{TakeSnapshot}, Say: ImportProgressing},
	{Name: "a snapshot is waited for", When: func(f Facts) bool { return f.Import == Storing }, Say: ImportProgressing},
	{Name: "the names are switched once the import is ready",
		When: func(f Facts) bool { return f.Import == Ready && !f.Switched }, Do: []Action{Switch}, Say: UpToDate},
	{Name: "old imports go when the new one is in use",
		When: func(f Facts) bool { return f.Import == Ready && f.Surplus }, Do: []Action{Collect}, Say: UpToDate},
	{Name: "there is nothing to do", When: func(Facts) bool { return true }, Say: UpToDate},
}
