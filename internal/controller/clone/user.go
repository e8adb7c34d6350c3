package clone

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/claimusers"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/controller/replacedclaim"
	"github.com/berth-vm/berth/internal/pods"
)

// A source must not change while it is read. Pods of Berth cannot: the worker or server that reads the source is recorded as a holder
// of its disk, and no launcher or worker starts to write beside one. Pods of users are in no record, so they are looked for before the
// worker is made, while it runs, and once more before the clone is said to be complete.

// reading is the entry of a clone as a holder of its source.
var reading = accessv1.Holder{Mode: accessv1.ReadShared, Use: accessv1.UseClone}

// observeWritten finds out whether a pod writes to the source of a clone that is being copied, or did so meanwhile. A claim
// restored from a snapshot to be read has no other users.
func (c *observer) observeWritten(ctx context.Context, s *Seen) error {
	if s.found.Claim == nil {
		return nil
	}
	var err error
	if s.server, err = c.readServer(ctx, c.reader, s); err != nil {
		return err
	}
	has := func(p *corev1.Pod) bool {
		if p == nil || p.Namespace != s.found.Claim.Namespace {
			return false
		}
		has, _ := pods.Has(p, s.found.Claim.Name)
		return has
	}
	if !has(s.target.Worker) && !has(s.server) {
		return nil
	}
	s.user, err = c.userOf(ctx, s)
	return err
}

// userOf returns the pod that may be writing to a clone's source, or "".
func (c *observer) userOf(ctx context.Context, s *Seen) (string, error) {
	source, worker := s.found.Claim, s.target.Worker
	if source == nil {
		return "", nil
	}
	if where, err := replacedclaim.Data(ctx, c.reader, source); err != nil || where.Place != replacedclaim.Here {
		return where.Why, err
	}
	over := worker != nil && pods.Over(worker)
	var all []*corev1.Pod
	var err error
	if over {
		all, err = claimusers.Since(ctx, c.reader, c.live, source, worker.CreationTimestamp.Time)
	} else {
		all, err = claimusers.Of(ctx, c.reader, source)
	}
	if err != nil {
		return "", err
	}
	for _, pod := range all {
		writes, err := c.mayWrite(ctx, s, pod, over)
		if err != nil {
			return "", err
		}
		if writes {
			return "pod " + pod.Namespace + "/" + pod.Name + " uses it", nil
		}
	}
	if over {
		return "", nil // a pod of Berth that has the disk now got it after the worker had ended
	}
	other, err := c.records.Blocker(ctx, source, reading, worker, s.server)
	if err != nil || other == nil {
		return "", err
	}
	return diskaccess.Who(other, source.Namespace), nil
}

// mayWrite reports whether the pod may write to the source while it is copied, or may have done so if the copying is over. Of a
// pod that is recorded as a holder the record says whether it writes; and if the copying is over, the pod was recorded after it.
func (c *observer) mayWrite(ctx context.Context, s *Seen, pod *corev1.Pod, over bool) (bool, error) {
	from := c.reader
	if over {
		from = c.live
	}
	held, err := c.records.HolderOf(ctx, from, s.found.Claim, pod.UID)
	switch {
	case err != nil:
		return false, err
	case held != nil:
		return !over && !diskaccess.Compatible(*held, reading), nil
	case pods.Over(pod):
		return true, nil // it ended after the copying had begun
	}
	return c.mayRun(ctx, s, pod)
}

// mayRun reports whether containers of the pod run, or may run at any moment. A kubelet starts none of them before all of the
// pod's claims are bound, so that a pod which waits for the clone itself is no user of its source. One that has no node yet is
// only a user if the scheduler may be about to place it because the clone is bound now: claims are bound a moment before their
// pod is.
func (c *observer) mayRun(ctx context.Context, s *Seen, pod *corev1.Pod) (bool, error) {
	if pod.Status.Phase == corev1.PodRunning {
		return true, nil
	}
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		of, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, c.reader, pod.Namespace, v.PersistentVolumeClaim.ClaimName)
		if err != nil {
			return false, err
		}
		if of == nil || of.Status.Phase != corev1.ClaimBound {
			return false, nil
		}
	}
	if pod.Spec.NodeName != "" {
		return true, nil
	}
	target := s.target.Claim
	return target != nil && s.target.Worker == nil && pod.Namespace == target.Namespace && unplaced(pod, target.Name) && !s.apart, nil
}
