package admission

import (
	"context"
	"net/url"

	"github.com/robfig/cron/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/importsource"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/pkg/claim"
)

// checkDataSource judges a DataSource. One without a source is fine: it is waiting for its first image.
func checkDataSource(_ context.Context, _, after *cdiv1.DataSource) (causes, error) {
	var c causes
	s, at := after.Spec.Source, specPath.Child("source")
	n := 0
	for _, one := range []struct {
		set         bool
		name, child string
	}{
		{s.PVC != nil, deref(s.PVC).Name, "PVC"},
		{s.Snapshot != nil, deref(s.Snapshot).Name, "snapshot"},
		{s.DataSource != nil, deref(s.DataSource).Name, "DataSource"},
	} {
		if !one.set {
			continue
		}
		n++
		if one.name == "" { // a namespace that is not said is its own
			c.invalid(at.Child(one.child), "%s source %s is not valid", at.Child(one.child), one.child)
		}
	}
	if n > 1 {
		c.invalid(at, "Multiple Data volume sources")
	}
	return c, nil
}

func deref[T any](p *T) T {
	if p == nil {
		return *new(T)
	}
	return *p
}

// checkCron judges a DataImportCron.
func checkCron(_ context.Context, before, after *cdiv1.DataImportCron) (causes, error) {
	var c causes
	if before != nil {
		if immutable(after.DeletionTimestamp, equality.Semantic.DeepEqual(before.Spec, after.Spec)) {
			c.invalid(specPath, "Cannot update DataImportCron Spec")
		}
		return c, nil
	}
	s := &after.Spec
	if len(after.Name) > validation.LabelValueMaxLength { // it becomes a label of everything the cron makes
		c.invalid(field.NewPath("metadata", "name"), "Name cannot be longer than %d characters", validation.LabelValueMaxLength)
	}
	template := specPath.Child("template")
	if source := s.Template.Spec.Source; source == nil || source.Registry == nil && source.HTTP == nil && source.PVC == nil {
		c.missing(template.Child("spec", "source"), "Missing source")
	} else {
		c = append(c, checkVolumeSpec(&s.Template.Spec, template.Child("spec"))...)
		if source.PVC != nil && after.Namespace != "" && source.PVC.Namespace != after.Namespace {
			c.invalid(template.Child("spec", "source", "pvc", "namespace"), "a DataImportCron follows a claim of its own namespace only, not of %s: "+
				"make the cron there, and clone what it imports", source.PVC.Namespace)
		}
	}
	if _, err := cron.ParseStandard(s.Schedule); err != nil && s.Schedule != "" { // without one nothing is polled
		c.invalid(specPath.Child("schedule"), "Illegal cron schedule")
	}
	if s.ImportsToKeep != nil && *s.ImportsToKeep < 0 {
		c.invalid(specPath.Child("importsToKeep"), "Illegal ImportsToKeep value")
	}
	if s.GarbageCollect != nil {
		switch *s.GarbageCollect {
		case cdiv1.DataImportCronGarbageCollectNever, cdiv1.DataImportCronGarbageCollectOutdated:
		default:
			c.invalid(specPath.Child("garbageCollect"), "Illegal GarbageCollect value")
		}
	}
	if len(validation.IsDNS1123Subdomain(s.ManagedDataSource)) > 0 {
		c.invalid(specPath.Child("managedDataSource"), "Illegal ManagedDataSource value")
	}
	return c, nil
}

// checkImportSource judges a VolumeImportSource.
func checkImportSource(_ context.Context, before, after *cdiv1.VolumeImportSource) (causes, error) {
	var c causes
	if before != nil {
		was, is := before.Spec.DeepCopy(), after.Spec.DeepCopy()
		was.Checkpoints, was.FinalCheckpoint, is.Checkpoints, is.FinalCheckpoint = nil, nil, nil, nil
		if immutable(after.DeletionTimestamp, equality.Semantic.DeepEqual(was, is)) {
			c.invalid(specPath, "Cannot update VolumeImportSource Spec")
		}
		if !equality.Semantic.DeepEqual(before.Spec.Checkpoints, after.Spec.Checkpoints) {
			checkStages(&after.Spec, &c)
		}
		return c, nil
	}
	s := &after.Spec
	checkSource(importsource.FromImport(s.Source), s.ContentType == cdiv1.DataVolumeArchive, specPath.Child("source"), &c)
	checkStages(s, &c)
	return c, nil
}

// checkStages judges the checkpoints of a VolumeImportSource, which are for one claim.
func checkStages(s *cdiv1.VolumeImportSourceSpec, c *causes) {
	if len(s.Checkpoints) > 0 && (s.TargetClaim == nil || *s.TargetClaim == "") {
		c.missing(specPath.Child("targetClaim"), "Unable to do multi-stage import without specifying a target claim")
	}
	checkCheckpoints(importsource.FromImport(s.Source), s.Checkpoints, s.ContentType == cdiv1.DataVolumeArchive, specPath.Child("checkpoints"), c)
}

// checkUploadSource judges a VolumeUploadSource.
func checkUploadSource(_ context.Context, before, after *cdiv1.VolumeUploadSource) (causes, error) {
	var c causes
	if before != nil && immutable(after.DeletionTimestamp, equality.Semantic.DeepEqual(before.Spec, after.Spec)) {
		c.invalid(specPath, "Cannot update VolumeUploadSource Spec")
	}
	return c, nil
}

// checkCloneSource judges a VolumeCloneSource. Its source may change: claims made later follow it.
func checkCloneSource(_ context.Context, _, after *cdiv1.VolumeCloneSource) (causes, error) {
	var c causes
	s, at := after.Spec.Source, specPath.Child("source")
	group := deref(s.APIGroup)
	pvc := group == corev1.GroupName && s.Kind == "PersistentVolumeClaim"
	snapshot := group == "snapshot.storage.k8s.io" && s.Kind == "VolumeSnapshot"
	if !pvc && !snapshot {
		c.invalid(at, "source must be a PersistentVolumeClaim or a VolumeSnapshot of snapshot.storage.k8s.io, not %s of group %q", s.Kind, group)
	}
	if s.Name == "" {
		c.missing(at.Child("name"), "Missing source name")
	}
	return c, nil
}

// checkTransfer refuses every ObjectTransfer: the kind is there so that clients that list it find nothing, and upstream
// is about to remove it.
func checkTransfer(_ context.Context, before, _ *cdiv1.ObjectTransfer) (causes, error) {
	var c causes
	if before == nil {
		c.invalid(specPath, "ObjectTransfer is not supported: clone the claim into the other namespace with a DataVolume "+
			"(spec.source.pvc) and delete the old one")
	}
	return c, nil
}

// checkCDI judges the CDI resource, and refuses to delete it as long as it says so itself.
func (l *lookup) checkCDI(ctx context.Context, before, after *cdiv1.CDI) (causes, error) {
	var c causes
	if after == nil {
		strategy := before.Spec.UninstallStrategy
		if strategy == nil || *strategy != cdiv1.CDIUninstallStrategyBlockUninstallIfWorkloadsExist {
			return nil, nil
		}
		some, err := l.anyVolume(ctx)
		if some != "" {
			c.invalid(specPath.Child("uninstallStrategy"), "there are still DataVolumes, for example %s: delete them, "+
				"or set uninstallStrategy to %s", some, cdiv1.CDIUninstallStrategyRemoveWorkloads)
		}
		return c, err
	}
	if _, err := importsource.ParseMirrors(after.Annotations[names.RegistryMirrors]); err != nil {
		c.invalid(field.NewPath("metadata", "annotations").Key(names.RegistryMirrors), "annotation %s: %v", names.RegistryMirrors, err)
	}
	if after.Spec.Config != nil {
		checkConfig(after.Spec.Config, specPath.Child("config"), &c)
	}
	return c, nil
}

func checkConfig(s *cdiv1.CDIConfigSpec, at *field.Path, c *causes) {
	if o := s.FilesystemOverhead; o != nil {
		checkOverhead(o.Global, at.Child("filesystemOverhead", "global"), c)
		for class, p := range o.StorageClass {
			checkOverhead(p, at.Child("filesystemOverhead", "storageClass").Key(class), c)
		}
	}
	if p := s.ImportProxy; p != nil {
		checkProxy(p.HTTPProxy, at.Child("importProxy", "HTTPProxy"), c)
		checkProxy(p.HTTPSProxy, at.Child("importProxy", "HTTPSProxy"), c)
	}
	if r := s.PodResourceRequirements; r != nil {
		for name, request := range r.Requests {
			if limit, ok := r.Limits[name]; ok && request.Cmp(limit) > 0 {
				c.invalid(at.Child("podResourceRequirements", "requests").Key(string(name)),
					"a worker cannot request %s of %s and be limited to %s", request.String(), name, limit.String())
			}
		}
	}
}

// everything as an overhead leaves no space on filesystems. It is accepted because upstream accepts it; a volume that cannot be
// made because of it reports that.
const everything cdiv1.Percent = "1"

func checkOverhead(p cdiv1.Percent, at *field.Path, c *causes) {
	if p == "" || p == everything {
		return
	}
	if _, err := claim.Inflate(leastSize, p); err != nil {
		c.invalid(at, "%s: %v", at, err)
	}
}

func checkProxy(raw *string, at *field.Path, c *causes) {
	if raw == nil || *raw == "" {
		return
	}
	if u, err := url.Parse(*raw); err != nil || u.Host == "" {
		c.invalid(at, "%s is not the URL of a proxy, such as http://proxy.example.com:3128", at)
	}
}
