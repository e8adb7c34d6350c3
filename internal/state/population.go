package state

import (
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// Reasons of claims that are populated without a DataVolume, besides those of filling them. They appear as events of the
// claim and in its annotations.
const (
	PopulationWaits   Reason = "PendingPopulation"
	PopulationDone    Reason = "PopulationSucceeded"
	PopulationKept    Reason = "PopulationNotNeeded"
	PopulationSkipped Reason = "PopulationSkipped"
	Rebinding         Reason = "RebindInProgress"
	PrimeLeaving      Reason = "PrepClaimLeaving"
	NodeRefused       Reason = "NodeRefused"
	SourceAbsent      Reason = "PopulationSourceMissing"
	SourceUngranted   Reason = "ReferenceNotGranted"
	SourceBroken      Reason = "PopulationSourceUnusable"
	ClasslessTarget   Reason = "StorageClassMissing"
)

// Populations returns the rows that only claims without a DataVolume have.
func Populations() []Row { return append([]Row(nil), populations...) }

var populations = []Row{
	{Reason: PopulationWaits, Phase: cdiv1.PendingPopulation,
		Message: "PVC {claim} is filled from {source} on the node of the first pod that uses it: start the VM or any pod with it, " +
			"or set the annotation cdi.kubevirt.io/storage.bind.immediate.requested"},
	{Reason: SourceAbsent, Phase: cdiv1.Pending, Warn: true,
		Message: "{source} doesn't exist; PVC {claim} is filled when it is created"},
	{Reason: SourceUngranted, Phase: cdiv1.Pending, Warn: true,
		Message: "PVC {claim} may not be filled from {source}: {detail}"},
	{Reason: SourceBroken, Phase: cdiv1.Pending, Warn: true,
		Message: "PVC {claim} cannot be filled from {source}: {detail}"},
	{Reason: ClasslessTarget, Phase: cdiv1.Pending, Warn: true, Bound: ClaimNotValid,
		Message: "PVC {claim} cannot be provisioned: {detail}"},
	{Reason: PrimeLeaving, Phase: cdiv1.PendingPopulation,
		Message: "what was made to fill PVC {claim} is being removed, then it is begun again; {detail}"},
	{Reason: NodeRefused, Phase: cdiv1.PendingPopulation, Warn: true,
		Message: "the node chosen for PVC {claim} cannot have its volume, so the scheduler chooses again; {detail}"},
	{Reason: Rebinding, Phase: cdiv1.RebindInProgress,
		Message: "PVC {claim} is given the volume that was filled for it"},
	{Reason: PopulationDone, Phase: cdiv1.Succeeded, Ready: true, Run: Completed,
		Message: "PVC {claim} filled from {source}"},
	{Reason: PopulationKept, Phase: cdiv1.Pending,
		Message: "PVC {claim} is not filled again: {detail}; it waits for its volume"},
	{Reason: PopulationSkipped, Phase: cdiv1.PVCBound, Warn: true,
		Message: "PVC {claim} was bound before it was filled from {source}, and nothing is written to it, because it may hold data: {detail}; " +
			"if it does, restore the claim with all of its annotations, or use a claim that names no source; if not, delete it and create it again"},
}
