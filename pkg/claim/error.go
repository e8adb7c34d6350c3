package claim

import "fmt"

// Lack is a part of a claim that is missing and cannot be completed.
type Lack string

// What Complete can be unable to fill.
const (
	LacksClass          Lack = "Class"          // no access mode, and no class whose profile could have one
	LacksModes          Lack = "Modes"          // neither access mode nor volume mode, and the profile has none
	LacksAccessMode     Lack = "AccessMode"     // a volume mode the profile has no access mode for
	LacksSize           Lack = "Size"           // no size, and no clone source to take it from
	LacksRoomForSource  Lack = "RoomForSource"  // a size, smaller than the clone source
	LacksUsableOverhead Lack = "UsableOverhead" // the configured filesystem overhead leaves no room for data
)

// Error says what could not be filled. Its text is the one clients know; Advice says what to do about it.
type Error struct {
	Lack    Lack
	Profile string // the StorageProfile that was asked, empty when there was none to ask
	Text    string
	Advice  string
}

// Error returns the text without the advice.
func (e *Error) Error() string { return e.Text }

func noClass() *Error {
	return &Error{
		Lack: LacksClass,
		Text: "PVC spec is missing accessMode and no storageClass to choose profile",
		Advice: "name a storageClassName or accessModes, or mark a class as default with the annotation " +
			DefaultVirtClassAnnotation + ": \"true\"",
	}
}

func noModes(profile, advice string) *Error {
	return &Error{
		Lack: LacksModes, Profile: profile, Advice: advice,
		Text: fmt.Sprintf("Spec is missing accessMode and volumeMode, cannot get access mode from StorageProfile %s", profile),
	}
}

func noAccessMode(profile, advice string) *Error {
	return &Error{
		Lack: LacksAccessMode, Profile: profile, Advice: advice,
		Text: fmt.Sprintf("Spec is missing accessMode and cannot get access mode from StorageProfile %s", profile),
	}
}
