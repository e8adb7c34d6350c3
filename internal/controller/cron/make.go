package cron

import (
	"context"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/token"
	"github.com/berth-vm/berth/pkg/claim"
)

// rolePoll is the role of the pods that ask sources.
const rolePoll = "poll"

// fieldOwner of the managed objects: another controller of ours writes their status, and each owner states everything it
// owns at once.
const fieldOwner = "berth-cron"

func owner(c *cdiv1.DataImportCron) metav1.OwnerReference {
	return *metav1.NewControllerRef(c, cdiv1.SchemeGroupVersion.WithKind("DataImportCron"))
}

// startPoll makes the pod that asks the source.
func (r *Reconciler) startPoll(ctx context.Context, s *seen) error {
	settings, err := r.settings.Settings(ctx)
	if err != nil {
		return err
	}
	from, err := render.FromSource(s.cron.Spec.Template.Spec.Source, settings.Network())
	if err != nil {
		return err
	}
	w := render.Worker{
		Name: pollName(s.cron), Namespace: s.cron.Namespace, Role: rolePoll, Owner: owner(s.cron), VolumeUID: s.cron.UID,
		Command: "poll", Secrets: from.Secrets, Settings: settings.Pod(r.image),
		Task: task.Task{Version: task.Version, Volume: s.cron.Namespace + "/" + s.cron.Name, Source: from.Source},
	}
	if s.cron.Spec.ServiceAccountName != nil {
		w.ServiceAccount = *s.cron.Spec.ServiceAccountName
	}
	pod, err := w.Pod()
	if err != nil {
		return err
	}
	return r.cluster.Create(ctx, pod)
}

// labels returns the labels of all objects that the cron makes: the cron's name, and the defaults for machines made from them.
func (s *seen) labels() map[string]string {
	labels := render.Labels("")
	maps.Copy(labels, clonesource.Inherited(s.cron.Labels))
	labels[Label] = s.cron.Name
	return labels
}

// newImport returns the DataVolume of the version that the source has. A container image is named by its digest, so that it is
// this version that is imported.
func (s *seen) newImport() *cdiv1.DataVolume {
	t := s.cron.Spec.Template
	v := &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.cron.Namespace, Name: importName(s.cron, s.digest), Labels: map[string]string{}, Annotations: map[string]string{},
		},
		Spec: *t.Spec.DeepCopy(),
	}
	maps.Copy(v.Labels, t.Labels)
	maps.Copy(v.Labels, s.labels())
	maps.Copy(v.Annotations, t.Annotations)
	delete(v.Annotations, token.Annotation) // a proof in a template is not the cron's
	v.Annotations[annDigest] = s.digest
	v.Annotations[names.Immediate] = "" // no pod will use it before it is cloned
	if reg := v.Spec.Source.Registry; reg != nil && reg.URL != nil {
		pinned := pin(*reg.URL, s.digest)
		reg.URL = &pinned
	}
	if sa := s.cron.Spec.ServiceAccountName; sa != nil && v.Spec.ServiceAccountName == "" {
		v.Spec.ServiceAccountName = *sa
	}
	v.OwnerReferences = s.owners()
	return v
}

// annOnce is on a storage profile: golden images of the class are claimed for one node at a time, whatever modes the class has.
const annOnce = "cdi.kubevirt.io/useReadWriteOnceForDataImportCron"

// createImport makes the DataVolume of the version that the source has.
func (r *Reconciler) createImport(ctx context.Context, s *seen) error {
	v := s.newImport()
	if want := v.Spec.Storage; want != nil && len(want.AccessModes) == 0 {
		once, err := r.once(ctx, want.StorageClassName)
		if err != nil {
			return err
		}
		if once {
			want.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		}
	}
	return r.cluster.Create(ctx, v)
}

// once reports whether the profile of the class, or of the default one, says annOnce.
func (r *Reconciler) once(ctx context.Context, class *string) (bool, error) {
	if class == nil {
		var all storagev1.StorageClassList
		if err := r.reader.List(ctx, &all); err != nil {
			return false, fmt.Errorf("list storage classes: %w", err)
		}
		found := claim.DefaultVirtClass(all.Items)
		if found == nil {
			found = claim.DefaultClass(all.Items)
		}
		if found == nil {
			return false, nil
		}
		class = &found.Name
	}
	p, err := cluster.Get[cdiv1.StorageProfile](ctx, r.reader, "", *class)
	return p != nil && p.Annotations[annOnce] == "true", err
}

// owners returns the owner references of what the cron makes: the cron, unless the objects outlive it.
func (s *seen) owners() []metav1.OwnerReference {
	if p := s.cron.Spec.RetentionPolicy; p != nil && *p == cdiv1.DataImportCronRetainNone {
		return []metav1.OwnerReference{owner(s.cron)}
	}
	return nil
}

// pin returns an image's URL with its digest instead of its tag.
func pin(url, digest string) string {
	scheme, rest, found := strings.Cut(url, "://")
	if !found || scheme != cdiv1.RegistrySchemeDocker {
		return url
	}
	rest, _, _ = strings.Cut(rest, "@")
	if colon := strings.LastIndex(rest, ":"); colon > strings.LastIndex(rest, "/") {
		rest = rest[:colon]
	}
	return fmt.Sprintf("%s://%s@%s", scheme, rest, digest)
}
