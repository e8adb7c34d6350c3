package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/names"
)

// keepStatus returns the status of the claim that the copy of a volume is kept in; nil if there is none.
func keepStatus(s *observed.Instance, volume string) *kubevirt.KeepStatus {
	at := slices.IndexFunc(s.KeptCopies, func(k *observed.Kept) bool { return k.Volume == volume })
	if at < 0 {
		return nil
	}
	k := s.KeptCopies[at]
	out := &kubevirt.KeepStatus{ClaimName: k.Name, Reason: k.Plan.Reason, Message: KeepText(s, k)}
	switch {
	case k.Plan.Reason == kubevirt.KeepDone:
		out.Progress = "100%"
	case k.Plan.Reason == kubevirt.KeepUnderWay && k.Word.Total > 0:
		out.Progress = fmt.Sprintf("%d%%", min(k.Word.Done*100/k.Word.Total, 99))
	}
	return out
}

// KeepText describes the progress of a copy that is kept in a claim.
func KeepText(s *observed.Instance, k *observed.Kept) string {
	claim := "PersistentVolumeClaim " + k.Name
	mark := fmt.Sprintf("annotation %s: %s", names.KeptFrom, observed.KeptFrom(s.Object, k.Volume))
	switch k.Plan.Reason {
	case kubevirt.KeepClaimMissing:
		return fmt.Sprintf("%s does not exist: make it with the %s, as virtctl vm keep does", claim, mark)
	case kubevirt.KeepNotForIt:
		return fmt.Sprintf("%s was not made for this disk, and nothing is written to it: it would have no source, no owner, and the %s", claim, mark)
	case kubevirt.KeepClaimLeaving:
		return claim + " is being deleted: the disk is not kept"
	case kubevirt.KeepFailed:
		return fmt.Sprintf("%s; delete %s, which does not have the disk, and keep it again in another", k.Word.Failed, claim)
	case kubevirt.KeepUnderWay:
		return claim + " is being written"
	case kubevirt.KeepDone:
		return claim + " has the disk"
	}
	if k.Hot == nil {
		return claim + " is made ready"
	}
	text := fmt.Sprintf("%s is brought to the guest (%s)", claim, k.Hot.Plan.Reason)
	if why := AddedStatus(s, k.Hot).Message; why != "" {
		text += ": " + why
	}
	return text
}

// holdText says what a deleted instance waits for.
func holdText(s *observed.Instance) string {
	var texts []string
	for _, k := range s.KeptCopies {
		if k.Plan.Hold {
			texts = append(texts, fmt.Sprintf("volume %s is being kept in PersistentVolumeClaim %s (%s); delete that to end at once",
				k.Volume, k.Name, keepStatus(s, k.Volume).Progress))
		}
	}
	return strings.Join(texts, "; ")
}

// keepAgain is how often the progress of a copy to a claim is read.
const keepAgain = 2 * time.Second

// keepsOn: some copy is to be kept and may still be.
func keepsOn(s *observed.Instance) bool {
	return slices.ContainsFunc(s.KeptCopies, func(k *observed.Kept) bool {
		return k.Plan.Reason != kubevirt.KeepDone && k.Plan.Reason != kubevirt.KeepFailed
	})
}
