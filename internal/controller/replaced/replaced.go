// Package replaced knows which volume has the data of a claim whose machine moved away from the claim's own volume. A claim cannot be
// given another volume while a pod has it, so a guest that moves gets another claim, the replacement, and its volume bears a record that
// it has the data of the first. The record is on PersistentVolumes because nobody but administrators and the controller writes those.
//
// It finds and reads records. When the first claim gets the volume, and how, is internal/controller/machine's to carry out.
package replaced

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// Label on a volume is a hash of the claim whose data it has, so that the server can be asked for it.
	Label = "berth.dev/replaces"
	// Annotation on the same volume is the Record.
	Annotation = "berth.dev/replaces"
	// By on a volume is the name of the volume that its data moved to. What is on it is old.
	By = "berth.dev/replaced-by"
)

// Record says whose data a volume has.
type Record struct {
	Namespace string `json:"namespace"`
	Claim     string `json:"claim"`
	// Machine is whose guest the data moved with.
	Machine string `json:"machine,omitempty"`
	// Old is the UID of the claim that had this name when the data moved; empty: there was none.
	Old types.UID `json:"old,omitempty"`
	// Turn is one more with every move: of several volumes the last has the data.
	Turn int `json:"turn"`
	// Replacement is the claim that the volume was made for, with its UID.
	Replacement string    `json:"replacement"`
	UID         types.UID `json:"uid"`
	// As is the old claim as it was, to be made again.
	As *corev1.PersistentVolumeClaim `json:"as,omitempty"`
}

// Volume is a volume and its record.
type Volume struct {
	*corev1.PersistentVolume
	Record Record
}

// Hash is the label's value for a claim.
func Hash(namespace, claim string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + claim))
	return hex.EncodeToString(sum[:16])
}

// Of are the volume that has the data of a claim, nil if that is the claim's own, and those that had it before.
func Of(ctx context.Context, reader client.Reader, namespace, claim string) (last *Volume, earlier []Volume, err error) {
	var list corev1.PersistentVolumeList
	if err := reader.List(ctx, &list, client.MatchingLabels{Label: Hash(namespace, claim)}); err != nil {
		return nil, nil, fmt.Errorf("list the volumes with the data of claim %s/%s: %w", namespace, claim, err)
	}
	for i := range list.Items {
		v := Volume{PersistentVolume: &list.Items[i]}
		if json.Unmarshal([]byte(v.Annotations[Annotation]), &v.Record) != nil || v.Record.Namespace != namespace || v.Record.Claim != claim {
			continue
		}
		switch {
		case last == nil:
			last = &v
		case v.Record.Turn > last.Record.Turn:
			earlier = append(earlier, *last)
			last = &v
		default:
			earlier = append(earlier, v)
		}
	}
	return last, earlier, nil
}

// ClaimsOf are the claims of a namespace whose data moved with the guest of one machine.
func ClaimsOf(ctx context.Context, reader client.Reader, namespace, machine string) ([]string, error) {
	var list corev1.PersistentVolumeList
	if err := reader.List(ctx, &list, client.HasLabels{Label}); err != nil {
		return nil, fmt.Errorf("list the volumes with the data of other claims: %w", err)
	}
	var out []string
	for i := range list.Items {
		var r Record
		if json.Unmarshal([]byte(list.Items[i].Annotations[Annotation]), &r) == nil && r.Namespace == namespace && r.Machine == machine {
			out = append(out, r.Claim)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Bearing is the volume with a record on it.
func Bearing(pv *corev1.PersistentVolume, r Record) (*corev1.PersistentVolume, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("write the record of volume %s: %w", pv.Name, err)
	}
	next := pv.DeepCopy()
	if next.Labels == nil {
		next.Labels = map[string]string{}
	}
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Labels[Label], next.Annotations[Annotation] = Hash(r.Namespace, r.Claim), string(text)
	return next, nil
}

// Cleared is the volume without a record.
func Cleared(pv *corev1.PersistentVolume) *corev1.PersistentVolume {
	next := pv.DeepCopy()
	delete(next.Labels, Label)
	delete(next.Annotations, Annotation)
	return next
}
