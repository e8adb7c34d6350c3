package state

import "strings"

// EvacuationReason names a row of the table about guests whose node is being emptied.
type EvacuationReason string

// The states of such a guest, on its instance and in the answer to the eviction request.
const (
	EvacuationAsked    EvacuationReason = "EvacuationAsked"
	EvacuationMoving   EvacuationReason = "Evacuating"
	EvacuationResting  EvacuationReason = "EvacuationRetries"
	EvacuationStarting EvacuationReason = "GuestStarting"
	EvacuationFixed    EvacuationReason = "GuestCannotMove"
	EvacuationComing   EvacuationReason = "GuestComing"
	EvacuationExternal EvacuationReason = "LeftToOthers"
)

// EvacuationRow is one of the states that are reported.
type EvacuationRow struct {
	Reason EvacuationReason
	Warn   bool
	// Message: {name} is the instance as NAMESPACE/NAME, {detail} the migration, or why it cannot move.
	Message string
}

// The first words of those that a move follows are upstream's: its clients look for them.
var evacuationTable = []EvacuationRow{
	{Reason: EvacuationAsked, Message: `Eviction triggered evacuation of VMI "{name}": its guest moves to another node; ask again until the pod is gone`},
	{Reason: EvacuationMoving, Message: "the guest is moved to another node, because the eviction of its pod was requested: {detail}"},
	{Reason: EvacuationResting, Warn: true,
		Message: "the guest is to leave its node and could not be moved; it is tried again: {detail}"},
	{Reason: EvacuationStarting, Message: `VMI "{name}" is being started, and is moved once it runs; if it does not come up, stop it: virtctl stop`},
	{Reason: EvacuationFixed, Warn: true,
		Message: `VMI "{name}" has to be moved from its node (evictionStrategy LiveMigrate) and cannot be: {detail}. Make it movable, stop it with virtctl stop, or set evictionStrategy to LiveMigrateIfPossible`},
	{Reason: EvacuationComing, Message: `the guest of VMI "{name}" is just moving to this node; ask again when it has come`},
	{Reason: EvacuationExternal, Message: `Eviction triggered evacuation of VMI "{name}": its evictionStrategy is External, so its external controller has to move or to stop it`},
}

// OfEvacuation returns the row a reason stands for; a reason without one is shown, not hidden.
func OfEvacuation(r EvacuationReason) EvacuationRow {
	for _, row := range evacuationTable {
		if row.Reason == r {
			return row
		}
	}
	return EvacuationRow{Reason: r, Warn: true, Message: string(r)}
}

// Text returns the row's message for one instance.
func (r EvacuationRow) Text(name, detail string) string {
	text := strings.ReplaceAll(strings.ReplaceAll(r.Message, "{name}", name), "{detail}", detail)
	if detail == "" {
		text = strings.TrimSuffix(text, ": ")
	}
	return text
}

// EvacuationRows returns the rows about guests whose node is being emptied.
func EvacuationRows() []EvacuationRow { return append([]EvacuationRow(nil), evacuationTable...) }
