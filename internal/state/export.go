package state

import "strings"

// ExportReason names a row of the table about exports.
type ExportReason string

// The states of an export.
const (
	ExportExpired   ExportReason = "Expired"
	ExportMissing   ExportReason = "SourceMissing"
	ExportNothing   ExportReason = "NothingToExport"
	ExportInUse     ExportReason = "InUse"
	ExportUnready   ExportReason = "SourceNotReady"
	ExportRestoring ExportReason = "MakingClaims"
	ExportStarting  ExportReason = "ServerStarting"
	ExportFailing   ExportReason = "ServerFails"
	ExportReady     ExportReason = "PodReady"
)

// ClaimsReason is the reason of an export's condition PVCReady, in upstream's words. Only ClaimsBound is true.
type ClaimsReason string

// The reasons of that condition.
const (
	ClaimsBound    ClaimsReason = "PVCBound"
	ClaimsPending  ClaimsReason = "PVCPending"
	ClaimsNotFound ClaimsReason = "PVCNotFound"
	ClaimsUnknown  ClaimsReason = "Unknown"
)

// ExportRow is one of the states that are reported about an export.
type ExportRow struct {
	Reason  ExportReason
	Phase   string
	Claims  ClaimsReason // whether the claims are there
	Warn    bool
	Message string // {detail} is the source, who uses it, or what the kubelet says
}

var exportTable = []ExportRow{
	{Reason: ExportExpired, Phase: "Terminated", Claims: ClaimsUnknown, Message: "the export's time is over and it is deleted"},
	{Reason: ExportMissing, Phase: "Pending", Claims: ClaimsNotFound, Warn: true, Message: "there is no {detail}: it is waited for"},
	{Reason: ExportNothing, Phase: "Skipped", Claims: ClaimsNotFound, Warn: true, Message: "nothing can be exported: {detail} has no volume in a claim"},
	{Reason: ExportInUse, Phase: "Pending", Claims: ClaimsBound, Message: "the disks may change while they are read: {detail}; stop it, or export a snapshot"},
	{Reason: ExportUnready, Phase: "Pending", Claims: ClaimsPending, Message: "waiting until the source is complete: {detail}"},
	{Reason: ExportRestoring, Phase: "Pending", Claims: ClaimsPending, Message: "claims are made from the snapshot: {detail}"},
	{Reason: ExportStarting, Phase: "Pending", Claims: ClaimsBound, Message: "waiting for the server of the export: {detail}"},
	{Reason: ExportFailing, Phase: "Pending", Claims: ClaimsBound, Warn: true, Message: "the server of the export does not stay: {detail}"},
	{Reason: ExportReady, Phase: "Ready", Claims: ClaimsBound, Message: "the disks can be downloaded with the token, until {detail}"},
}

// OfExport returns the row a reason stands for; a reason without one is shown, not hidden.
func OfExport(r ExportReason) ExportRow {
	for _, row := range exportTable {
		if row.Reason == r {
			return row
		}
	}
	return ExportRow{Reason: r, Phase: "Pending", Claims: ClaimsUnknown, Warn: true, Message: "{detail}"}
}

// Text returns the message with its blank filled in.
func (r ExportRow) Text(detail string) string {
	if detail == "" {
		return strings.ReplaceAll(r.Message, ": {detail}", "")
	}
	return strings.ReplaceAll(r.Message, "{detail}", detail)
}

// ExportRows returns the whole table.
func ExportRows() []ExportRow { return append([]ExportRow(nil), exportTable...) }
