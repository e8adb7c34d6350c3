// Package cron decides what to do next for a DataImportCron. Two things go on at once, asking the source what it has and
// importing it, so there are two tables of rules; Decide is a pure function from facts to a plan of both.
//
// It does not know Kubernetes objects, clients, schedules or the time.
package cron

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
	// Surplus: there are more imports than are to be kept, or a claim whose snapshot is.
	Surplus bool
	// Taken: a managed name belongs to somebody else.
	Taken bool
	// Unreadable: the schedule or the source makes no sense.
	Unreadable bool
}

// Action is something to do. Each is safe to repeat.
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

// Reason is what the conditions say, in the words that CDI's clients know wherever CDI has the state at all.
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

type rule struct {
	name string
	when func(Facts) bool
	do   []Action
	say  Reason
}

// Decide finds the first rule of each table that holds.
func Decide(f Facts) Plan {
	var p Plan
	for _, r := range polls {
		if r.when(f) {
			p.Rules, p.Do = append(p.Rules, r.name), append(p.Do, r.do...)
			break
		}
	}
	for _, r := range imports {
		if r.when(f) {
			p.Rules, p.Do = append(p.Rules, r.name), append(p.Do, r.do...)
			p.Say = r.say
			break
		}
	}
	return p
}

// polls is how the source is asked.
var polls = []rule{
	{name: "what makes no sense is not asked for", when: func(f Facts) bool { return f.Unreadable && f.Poll == NoPoll }},
	{name: "an answer is noted before it goes",
		when: func(f Facts) bool { return (f.Poll == Answered || f.Poll == Unanswered) && !f.Noted }, do: []Action{NotePoll}},
	{name: "a noted answer is no longer needed",
		when: func(f Facts) bool { return f.Poll == Answered || f.Poll == Unanswered }, do: []Action{EndPoll}},
	{name: "one question at a time", when: func(f Facts) bool { return f.Poll != NoPoll }},
	{name: "the source is asked when it is time", when: func(f Facts) bool { return f.PollDue }, do: []Action{StartPoll}},
	{name: "it is not time yet", when: func(Facts) bool { return true }},
}

// imports is what is done with the answer.
var imports = []rule{
	{name: "what makes no sense is said", when: func(f Facts) bool { return f.Unreadable }, say: Invalid},
	{name: "a name of somebody else is left alone", when: func(f Facts) bool { return f.Taken }, say: AlreadyManaged},
	{name: "nothing is imported before it is known what", when: func(f Facts) bool { return f.Import == Unknown }, say: NoDigest},
	{name: "a new version is imported",
		when: func(f Facts) bool { return f.Import == Missing }, do: []Action{CreateImport}, say: Outdated},
	{name: "an import is waited for",
		when: func(f Facts) bool { return f.Import == Scheduled || f.Import == Importing }, say: ImportProgressing},
	{name: "an import that failed leaves the last one in place",
		when: func(f Facts) bool { return f.Import == Broken }, say: Outdated},
	{name: "an import is kept as a snapshot where its storage is better at that",
		when: func(f Facts) bool { return f.Import == Imported }, do: []Action{TakeSnapshot}, say: ImportProgressing},
	{name: "a snapshot is waited for", when: func(f Facts) bool { return f.Import == Storing }, say: ImportProgressing},
	{name: "the names are switched once the import is ready",
		when: func(f Facts) bool { return f.Import == Ready && !f.Switched }, do: []Action{Switch}, say: UpToDate},
	{name: "old imports go when the new one is in use",
		when: func(f Facts) bool { return f.Import == Ready && f.Surplus }, do: []Action{Collect}, say: UpToDate},
	{name: "there is nothing to do", when: func(Facts) bool { return true }, say: UpToDate},
}
