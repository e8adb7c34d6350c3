// Package replacedclaim answers where the data of a claim is. A claim cannot be given another volume while a pod has it, so a guest that moves
// gets another claim, the replacement, whose volume has a record that it has the data of the first. While the guest runs there, the first
// claim is bound to a second PersistentVolume of the same volume, the alias. Records are on PersistentVolumes because only administrators
// and the controller write those.
//
// It finds, reads and makes records and aliases. internal/controller/relocate decides when a claim gets its volume, and carries it out.
package replacedclaim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

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
	// Live: the guest moved while it ran, so a launcher has the replacement until the machine stops.
	Live bool `json:"live,omitempty"`
	// Old is the UID of the claim that had this name when the data moved; empty: there was none.
	Old types.UID `json:"old,omitempty"`
	// Turn is one more with every move: of several volumes the last has the data.
	Turn int `json:"turn"`
	// Replacement is the claim that the volume was made for, with its UID.
	Replacement string    `json:"replacement"`
	UID         types.UID `json:"uid"`
	// Policy is the volume's reclaim policy. A volume with a record has Retain instead, so that no claim's deletion takes the data along.
	Policy corev1.PersistentVolumeReclaimPolicy `json:"policy,omitempty"`
	// As is the old claim as it was, to be made again.
	As *corev1.PersistentVolumeClaim `json:"as,omitempty"`
}

// Volume is a volume and its record.
type Volume struct {
	*corev1.PersistentVolume
	Record Record
}

// Hash returns the label's value for a claim.
func Hash(namespace, claim string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + claim))
	return hex.EncodeToString(sum[:16])
}

// Of returns the volume that the data of a claim moved to, nil if it did not move, and those that had it before. The claim may have that
// volume by an alias already: Where answers that.
func Of(ctx context.Context, reader client.Reader, namespace, claim string) (last *Volume, earlier []Volume, err error) {
	volumes, err := labelled(ctx, reader, namespace, claim)
	if err != nil {
		return nil, nil, err
	}
	for i := range volumes {
		v, ok := Read(&volumes[i])
		if !ok || v.Record.Namespace != namespace || v.Record.Claim != claim {
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

func labelled(ctx context.Context, reader client.Reader, namespace, claim string) ([]corev1.PersistentVolume, error) {
	var list corev1.PersistentVolumeList
	if err := reader.List(ctx, &list, client.MatchingLabels{Label: Hash(namespace, claim)}); err != nil {
		return nil, fmt.Errorf("list the volumes with the data of claim %s/%s: %w", namespace, claim, err)
	}
	return list.Items, nil
}

// Read returns the record of a volume; false if it has none.
func Read(pv *corev1.PersistentVolume) (Volume, bool) {
	v := Volume{PersistentVolume: pv}
	text := pv.Annotations[Annotation]
	return v, text != "" && json.Unmarshal([]byte(text), &v.Record) == nil
}

// WithRecord returns the volume with a record on it, and with the reclaim policy Retain.
func WithRecord(pv *corev1.PersistentVolume, r Record) (*corev1.PersistentVolume, error) {
	next := pv.DeepCopy()
	if r.Policy == "" {
		r.Policy = pv.Spec.PersistentVolumeReclaimPolicy
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("write the record of volume %s: %w", pv.Name, err)
	}
	mark(next, Hash(r.Namespace, r.Claim), Annotation, string(text))
	next.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	return next, nil
}

// WithPolicy returns the volume with the reclaim policy that it had before its record was written.
func (v Volume) WithPolicy() *corev1.PersistentVolume {
	next := v.DeepCopy()
	if v.Record.Policy != "" {
		next.Spec.PersistentVolumeReclaimPolicy = v.Record.Policy
	}
	return next
}

// Cleared returns the volume without its record, with the reclaim policy that it had before.
func (v Volume) Cleared() *corev1.PersistentVolume {
	next := v.WithPolicy()
	delete(next.Labels, Label)
	delete(next.Annotations, Annotation)
	return next
}

func mark(pv *corev1.PersistentVolume, hash, key, text string) {
	if pv.Labels == nil {
		pv.Labels = map[string]string{}
	}
	if pv.Annotations == nil {
		pv.Annotations = map[string]string{}
	}
	pv.Labels[Label], pv.Annotations[key] = hash, text
}
