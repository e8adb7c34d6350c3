package state

import "strings"

// ExportReason names a row of the table about exports.
type ExportReason string

// What can be said about an export.
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

// ExportRow is one thing that can be said about an export.
type ExportRow struct {
	Reason  ExportReason
	Phase   string
	Claims  bool // they can be read
	Warn    bool
	Message string // {detail} is the source, who uses it, or what the kubelet says
}

var exportTable = []ExportRow{
	{Reason: ExportExpired, Phase: "Terminated", Message: "the export's time is over and it is deleted"},
	{Reason: ExportMissing, Phase: "Pending", Warn: true, Message: "there is no {detail}: it is waited for"},
	{Reason: ExportNothing, Phase: "Skipped", Warn: true, Message: "nothing can be exported: {detail} has no volume in a claim"},
	{Reason: ExportInUse, Phase: "Pending", Message: "the disks may change while they are read: {detail}; stop it, or export a snapshot"},
	{Reason: ExportUnready, Phase: "Pending", Message: "waiting until the source is complete: {detail}"},
	{Reason: ExportRestoring, Phase: "Pending", Message: "claims are made from the snapshot: {detail}"},
	{Reason: ExportStarting, Phase: "Pending", Claims: true, Message: "waiting for the server of the export: {detail}"},
	{Reason: ExportFailing, Phase: "Pending", Claims: true, Warn: true, Message: "the server of the export does not stay: {detail}"},
	{Reason: ExportReady, Phase: "Ready", Claims: true, Message: "the disks can be downloaded with the token, until {detail}"},
}

// OfExport is the row a reason stands for; a reason without one is shown, not hidden.
func OfExport(r ExportReason) ExportRow {
	for _, row := range exportTable {
		if row.Reason == r {
			return row
		}
	}
	return ExportRow{Reason: r, Phase: "Pending", Warn: true, Message: "{detail}"}
}

// Text is the message with its blank filled in.
func (r ExportRow) Text(detail string) string {
	if detail == "" {
		return strings.ReplaceAll(r.Message, ": {detail}", "")
	}
	return strings.ReplaceAll(r.Message, "{detail}", detail)
}

// ExportRows is the whole table.
func ExportRows() []ExportRow { return append([]ExportRow(nil), exportTable...) }
