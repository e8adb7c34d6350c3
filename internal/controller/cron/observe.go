package cron

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	schedule "github.com/robfig/cron/v3"
	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/worker"
	"github.com/berth-vm/berth/internal/decide/cron"
	"github.com/berth-vm/berth/internal/task"
)

// Annotations of a cron: what the last poll came to, which must outlive its pod. The first three are the words of CDI.
const (
	annDigest  = "cdi.kubevirt.io/storage.import.sourceDesiredDigest"
	annPolled  = "cdi.kubevirt.io/storage.import.lastCronTime"
	annNext    = "cdi.kubevirt.io/storage.import.nextCronTime" // when the source is asked next; a time that is over asks at once
	annTrouble = "berth.dev/poll-error"                        // why the last poll came to nothing
	annPod     = "berth.dev/poll-pod"                          // the pod whose answer is noted
)

// Label names the cron on everything that it makes.
const Label = "cdi.kubevirt.io/dataImportCron"

// keepByDefault is how many imports are kept where the cron does not say.
const keepByDefault = 3

// again is how long after a failed poll the source is polled again, unless the schedule says sooner.
const again = 5 * time.Minute

// never is the delay of the next poll of a cron without a schedule.
const never = 10 * 365 * 24 * time.Hour

// seen is the part of the cluster that one cron depends on, read once.
type seen struct {
	cron       *cdiv1.DataImportCron
	now        time.Time
	next       time.Time // when to ask again
	wrong      error     // why the cron makes no sense
	poll       *corev1.Pod
	report     *task.Report
	digest     string // of what the source had last; empty: never said
	imports    []cdiv1.DataVolume
	claims     []corev1.PersistentVolumeClaim // with the cron's label
	current    *cdiv1.DataVolume              // of digest; nil: there is none
	stored     stored
	dataSource *cdiv1.DataSource
	cloneFrom  *cdiv1.VolumeCloneSource
}

func (r *Reconciler) observe(ctx context.Context, c *cdiv1.DataImportCron) (*seen, error) {
	s := &seen{cron: c, now: r.clock.Now(), digest: c.Annotations[annDigest]}
	s.wrong = s.plan()
	var err error
	if s.poll, err = cluster.Owned[corev1.Pod](ctx, r.reader, c.UID, c.Namespace, pollName(c)); err != nil {
		return nil, err
	}
	s.report = worker.Report(s.poll)
	if src := c.Spec.Template.Spec.Source; src != nil && src.PVC != nil && src.PVC.Namespace == c.Namespace && c.Spec.Schedule != "" {
		if err := r.observeClaim(ctx, s, src.PVC); err != nil {
			return nil, err
		}
	}
	var all cdiv1.DataVolumeList
	if err := r.reader.List(ctx, &all, client.InNamespace(c.Namespace), client.MatchingLabels{Label: c.Name}); err != nil {
		return nil, fmt.Errorf("list imports of %s/%s: %w", c.Namespace, c.Name, err)
	}
	s.imports = all.Items
	var claims corev1.PersistentVolumeClaimList
	if err := r.reader.List(ctx, &claims, client.InNamespace(c.Namespace), client.MatchingLabels{Label: c.Name}); err != nil {
		return nil, fmt.Errorf("list claims of %s/%s: %w", c.Namespace, c.Name, err)
	}
	s.claims = claims.Items
	for i := range s.imports {
		if s.digest != "" && s.imports[i].Name == importName(c, s.digest) {
			s.current = &s.imports[i]
		}
	}
	if err := r.observeStored(ctx, s); err != nil {
		return nil, err
	}
	if s.dataSource, err = cluster.Get[cdiv1.DataSource](ctx, r.reader, c.Namespace, c.Spec.ManagedDataSource); err != nil {
		return nil, err
	}
	s.cloneFrom, err = cluster.Get[cdiv1.VolumeCloneSource](ctx, r.reader, c.Namespace, c.Spec.ManagedDataSource)
	return s, err
}

// plan works out when to ask next.
func (s *seen) plan() error {
	src := s.cron.Spec.Template.Spec.Source
	if src == nil || src.Registry == nil && src.HTTP == nil && src.PVC == nil {
		return errors.New("the template's source must be registry, http or pvc")
	}
	if src.PVC != nil && src.PVC.Namespace != s.cron.Namespace {
		return fmt.Errorf("the template's source pvc is in namespace %s: a cron follows a claim of its own namespace only, "+
			"because nobody's right to another one is known when it imports", src.PVC.Namespace)
	}
	if s.cron.Spec.Schedule == "" {
		s.next = s.now.Add(never) // the author of the digest decides what is imported
		return nil
	}
	when, err := schedule.ParseStandard(s.cron.Spec.Schedule)
	if err != nil {
		return fmt.Errorf("the schedule %q is none: %w", s.cron.Spec.Schedule, err)
	}
	last, err := time.Parse(time.RFC3339, s.cron.Annotations[annPolled])
	if err != nil {
		s.next = s.now // never yet
		return nil
	}
	s.next = nextPoll(when, last, s.cron.Annotations[annTrouble] != "")
	// Each answer writes the annotation with a time in the future. A time that has passed was written by a user who wants a check
	// now.
	if asked, err := time.Parse(time.RFC3339, s.cron.Annotations[annNext]); err == nil && !asked.After(s.now) {
		s.next = s.now
	}
	return nil
}

// nextPoll returns when the source is asked after a poll.
func nextPoll(when schedule.Schedule, last time.Time, failed bool) time.Time {
	next := when.Next(last.UTC())
	if soon := last.Add(again); failed && soon.Before(next) {
		return soon
	}
	return next
}

// observeClaim: a claim needs no poll, its UID tells one version from the next.
func (r *Reconciler) observeClaim(ctx context.Context, s *seen, from *cdiv1.DataVolumeSourcePVC) error {
	c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.reader, from.Namespace, from.Name)
	if err != nil {
		return err
	}
	if s.next.Before(s.now) || s.next.Equal(s.now) {
		s.next = s.now.Add(again)
	}
	if c != nil {
		s.digest = "uid:" + string(c.UID)
	}
	return nil
}

func (s *seen) facts() cron.Facts {
	f := cron.Facts{
		Poll: s.pollFact(), PollDue: !s.now.Before(s.next), Import: s.importFact(), Switched: s.switched(),
		Surplus: len(s.surplus()) > 0, Taken: s.taken() != "", Unreadable: s.wrong != nil,
	}
	f.Noted = s.poll != nil && s.cron.Annotations[annPod] == string(s.poll.UID)
	return f
}

func (s *seen) pollFact() cron.Poll {
	switch {
	case s.poll == nil:
		return cron.NoPoll
	case s.poll.DeletionTimestamp != nil:
		return cron.Ending
	case s.poll.Status.Phase == corev1.PodSucceeded && s.report != nil && s.report.Digest != "":
		return cron.Answered
	case s.poll.Status.Phase == corev1.PodSucceeded, s.poll.Status.Phase == corev1.PodFailed:
		return cron.Unanswered
	}
	return cron.Asking
}

func (s *seen) importFact() cron.Import {
	switch {
	case s.digest == "":
		return cron.Unknown
	case s.stored.wanted && s.stored.current != nil:
		return s.stored.fact()
	case s.current == nil || s.current.DeletionTimestamp != nil:
		return cron.Missing
	}
	switch s.current.Status.Phase { //nolint:exhaustive // between scheduled and the end it is on its way
	case cdiv1.Succeeded:
		if s.stored.wanted {
			return cron.Imported
		}
		return cron.Ready
	case cdiv1.Failed:
		return cron.Broken
	case cdiv1.PhaseUnset, cdiv1.Pending, cdiv1.ImportScheduled, cdiv1.CloneScheduled:
		return cron.Scheduled
	}
	return cron.Importing
}

// taken returns the other owner of the managed name; "" if there is none.
func (s *seen) taken() string {
	for kind, obj := range map[string]client.Object{"DataSource": orNil(s.dataSource), "VolumeCloneSource": orNil(s.cloneFrom)} {
		if obj == nil {
			continue
		}
		if owner := obj.GetLabels()[Label]; owner != s.cron.Name && (owner != "" || kind == "VolumeCloneSource") {
			return fmt.Sprintf("%s %s is managed by %s", kind, obj.GetName(), or(owner, "somebody else"))
		}
	}
	return ""
}

// orNil keeps a nil pointer from becoming an interface that is not nil.
func orNil[T any, P interface {
	*T
	client.Object
}](p P) client.Object {
	if p == nil {
		return nil
	}
	return p
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// pollName returns the name of the pod that asks the source.
func pollName(c *cdiv1.DataImportCron) string { return "poll-" + string(c.UID) }

// aDigest is the digest of a container image; others may write anything into the annotation.
var aDigest = regexp.MustCompile(`^sha256:[0-9a-f]{12,64}$`)

// importName returns the name of the import of one version: it says which.
func importName(c *cdiv1.DataImportCron, digest string) string {
	_, value, _ := strings.Cut(digest, ":")
	if !aDigest.MatchString(digest) {
		sum := sha256.Sum256([]byte(digest))
		value = hex.EncodeToString(sum[:])
	}
	return c.Spec.ManagedDataSource + "-" + value[:min(len(value), 12)]
}
