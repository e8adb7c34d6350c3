package takeover

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/claimorder"
	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/token"
	"github.com/berth-vm/berth/internal/virtctl/takeover/plan"
)

func claim(phase corev1.PersistentVolumeClaimPhase, notes map[string]string, from string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "disk", UID: "claim", Annotations: notes}}
	c.Status.Phase = phase
	if from != "" {
		c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To(cdiv1.SchemeGroupVersion.Group), Kind: from, Name: "a"}
	}
	return c
}

// TestVolumes: CDI's words come to what may be done, and a phase that is not known to nothing at all.
func TestVolumes(t *testing.T) {
	volume := func(phase cdiv1.DataVolumePhase) *cdiv1.DataVolume {
		return &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "disk", UID: "dv"}, Status: cdiv1.DataVolumeStatus{Phase: phase}}
	}
	owned := func(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
		c.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(volume(""), cdiv1.SchemeGroupVersion.WithKind("DataVolume"))}
		return c
	}
	staged := volume(cdiv1.Paused)
	staged.Spec.Source, staged.Spec.Checkpoints = &cdiv1.DataVolumeSource{VDDK: &cdiv1.DataVolumeSourceVDDK{}}, []cdiv1.DataVolumeCheckpoint{{}}
	shared := volume(cdiv1.WaitForFirstConsumer)
	shared.Spec.Source = &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: "golden", Name: "debian"}}
	named := volume(cdiv1.PendingPopulation)
	named.Spec.SourceRef = &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Namespace: ptr.To("golden"), Name: "debian"}
	beside := volume(cdiv1.WaitForFirstConsumer)
	beside.Spec.SourceRef = &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Name: "debian"}
	const theirs = "eyJhbGciOiJQUzI1NiJ9.e30.c2ln" // a token of CDI's, which only CDI can check
	cloned := func(phase cdiv1.DataVolumePhase, from string) *cdiv1.DataVolume {
		v := volume(phase)
		v.Annotations = map[string]string{token.Annotation: theirs}
		v.Spec.Source = &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: from, Name: "debian"}}
		return v
	}
	restored := func(phase cdiv1.DataVolumePhase, from string) *cdiv1.DataVolume {
		v := volume(phase)
		v.Spec.Source = &cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: from, Name: "then"}}
		return v
	}
	device := func(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
		c.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
		return c
	}
	stream := volume(cdiv1.Pending)
	stream.Spec.Source = &cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{ImageStream: ptr.To("debian")}}
	golden := dataSources{
		{Namespace: "team", Name: "debian"}: {ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "debian"},
			Spec: cdiv1.DataSourceSpec{Source: cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Name: "debian"}}}},
		{Namespace: "team", Name: "away"}: {ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "away"},
			Spec: cdiv1.DataSourceSpec{Source: cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: "golden", Name: "debian"}}}},
	}
	away := volume(cdiv1.WaitForFirstConsumer)
	away.Spec.SourceRef = &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Name: "away"}
	for name, c := range map[string]struct {
		volume       *cdiv1.DataVolume
		claim, prime *corev1.PersistentVolumeClaim
		want         plan.Verdict
		do           int
	}{
		"done, with a worker's record":     {volume(cdiv1.Succeeded), owned(claim("Bound", map[string]string{names.PodPhase: "Succeeded"}, "")), nil, plan.Taken, 0},
		"cloned by its driver":             {volume(cdiv1.Succeeded), owned(claim("Bound", nil, cdiv1.VolumeCloneSourceRef)), nil, plan.Taken, 1},
		"adopted":                          {volume(cdiv1.Succeeded), claim("Bound", map[string]string{names.PopulatedFor: "disk"}, ""), nil, plan.Taken, 1},
		"done, and its claim gone":         {volume(cdiv1.Succeeded), nil, nil, plan.Refused, 0},
		"its claim is another's":           {volume(cdiv1.Pending), claim("Bound", nil, ""), nil, plan.Taken, 0},
		"waits for its consumer":           {volume(cdiv1.PendingPopulation), owned(claim("Pending", nil, cdiv1.VolumeImportSourceRef)), nil, plan.Taken, 0},
		"waits, and CDI has begun":         {volume(cdiv1.PendingPopulation), owned(claim("Pending", nil, cdiv1.VolumeImportSourceRef)), claim("Pending", nil, ""), plan.Finished, 0},
		"waits in the old way":             {volume(cdiv1.WaitForFirstConsumer), owned(claim("Pending", nil, "")), nil, plan.Taken, 1},
		"waits, and a clone has begun":     {volume(cdiv1.PendingPopulation), owned(claim("Pending", map[string]string{"cdi.kubevirt.io/clonePhase": "HostClone"}, cdiv1.VolumeCloneSourceRef)), nil, plan.Finished, 0},
		"imports":                          {volume(cdiv1.ImportInProgress), owned(claim("Pending", nil, cdiv1.VolumeImportSourceRef)), claim("Bound", nil, ""), plan.Finished, 0},
		"done, and CDI still has the rest": {volume(cdiv1.Succeeded), owned(claim("Bound", map[string]string{names.PodPhase: "Succeeded"}, cdiv1.VolumeImportSourceRef)), claim("Lost", nil, ""), plan.Finished, 0},
		"done, and the rest is to stay":    {volume(cdiv1.Succeeded), owned(claim("Bound", map[string]string{names.PodPhase: "Succeeded"}, cdiv1.VolumeImportSourceRef)), claim("Lost", map[string]string{names.Retain: "true"}, ""), plan.Taken, 1},
		"done by a populator":              {volume(cdiv1.Succeeded), owned(claim("Bound", map[string]string{names.PodPhase: "Succeeded"}, cdiv1.VolumeImportSourceRef)), nil, plan.Taken, 1},
		"waits for an upload":              {volume(cdiv1.UploadReady), owned(claim("Pending", nil, cdiv1.VolumeUploadSourceRef)), claim("Bound", nil, ""), plan.Taken, 2},
		"in stages":                        {staged, owned(claim("Bound", nil, "")), nil, plan.Refused, 0},
		"another namespace's, waits":       {shared, owned(claim("Pending", nil, "")), nil, plan.Refused, 0},
		"another's DataSource's, waits":    {named, nil, nil, plan.Refused, 0},
		"its namespace's DataSource's":     {beside, owned(claim("Pending", nil, "")), nil, plan.Taken, 1},
		"by its DataSource, another's":     {away, owned(claim("Pending", nil, "")), nil, plan.Refused, 0},
		"an image stream's":                {stream, nil, nil, plan.Refused, 0},
		"a device, done":                   {volume(cdiv1.Succeeded), device(owned(claim("Bound", map[string]string{names.PodPhase: "Succeeded"}, cdiv1.VolumeImportSourceRef))), nil, plan.Taken, 1},
		"a device, under way":              {volume(cdiv1.ImportInProgress), device(owned(claim("Pending", nil, cdiv1.VolumeImportSourceRef))), device(claim("Bound", nil, "")), plan.Finished, 0},
		"a clone with CDI's token, waits":  {cloned(cdiv1.PendingPopulation, "team"), owned(claim("Pending", nil, cdiv1.VolumeCloneSourceRef)), nil, plan.Taken, 0},
		"the same, under way":              {cloned(cdiv1.CloneInProgress, "team"), owned(claim("Pending", nil, cdiv1.VolumeCloneSourceRef)), nil, plan.Finished, 0},
		"CDI's token for another, waits":   {cloned(cdiv1.PendingPopulation, "golden"), owned(claim("Pending", nil, cdiv1.VolumeCloneSourceRef)), nil, plan.Refused, 0},
		"the same token, under way":        {cloned(cdiv1.CloneInProgress, "golden"), owned(claim("Pending", nil, cdiv1.VolumeCloneSourceRef)), nil, plan.Finished, 0},
		"the same token, done":             {cloned(cdiv1.Succeeded, "golden"), owned(claim("Bound", nil, cdiv1.VolumeCloneSourceRef)), nil, plan.Taken, 1},
		"a snapshot's, waits":              {restored(cdiv1.PendingPopulation, "team"), owned(claim("Pending", nil, cdiv1.VolumeCloneSourceRef)), nil, plan.Taken, 0},
		"another namespace's snapshot's":   {restored(cdiv1.PendingPopulation, "golden"), owned(claim("Pending", nil, cdiv1.VolumeCloneSourceRef)), nil, plan.Refused, 0},
		"a snapshot's, under way":          {restored(cdiv1.CloneFromSnapshotSourceInProgress, "team"), owned(claim("Pending", nil, cdiv1.VolumeCloneSourceRef)), nil, plan.Finished, 0},
		"a snapshot's, done":               {restored(cdiv1.Succeeded, "team"), owned(claim("Bound", nil, cdiv1.VolumeCloneSourceRef)), nil, plan.Taken, 1},
		"a word that nobody knows":         {volume("Meditating"), owned(claim("Bound", nil, "")), nil, plan.Refused, 0},
		"failed, with something on a disk": {volume(cdiv1.Failed), owned(claim("Bound", nil, "")), nil, plan.Taken, 0},
	} {
		resolved, err := clonesource.Resolve(t.Context(), golden, c.volume.Namespace, &c.volume.Spec)
		if err != nil {
			t.Fatal(err)
		}
		if p := plan.Decide(ofVolume(c.volume, resolved.Source, c.claim, c.prime)); p.Verdict != c.want || len(p.Do) != c.do {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if len(phases) != 22 { // all of the API's but Unknown
		t.Errorf("%d phases are known", len(phases))
	}
}

// TestClaims: claims without a DataVolume are CDI's if they order something from it.
func TestClaims(t *testing.T) {
	done := map[string]string{names.PodPhase: "Succeeded", claimorder.Upload: ""}
	for name, c := range map[string]struct {
		claim, prime *corev1.PersistentVolumeClaim
		want         plan.Verdict // empty: it is none of CDI's
		do           int
	}{
		"anybody's":                   {claim("Bound", nil, ""), nil, "", 0},
		"another populator's":         {claim("Pending", nil, "Image"), nil, "", 0},
		"populated":                   {claim("Bound", nil, cdiv1.VolumeImportSourceRef), nil, plan.Taken, 1},
		"populated, and it says so":   {claim("Bound", map[string]string{names.PopulatedFor: "disk"}, cdiv1.VolumeCloneSourceRef), nil, plan.Taken, 0},
		"populated, CDI's rest there": {claim("Bound", nil, cdiv1.VolumeImportSourceRef), claim("Lost", nil, ""), plan.Finished, 0},
		"to be populated":             {claim("Pending", nil, cdiv1.VolumeImportSourceRef), nil, plan.Taken, 0},
		"being populated":             {claim("Pending", nil, cdiv1.VolumeImportSourceRef), claim("Bound", nil, ""), plan.Finished, 0},
		"to be cloned":                {claim("Pending", map[string]string{"cdi.kubevirt.io/clonePhase": "Pending"}, cdiv1.VolumeCloneSourceRef), nil, plan.Taken, 0},
		"being cloned":                {claim("Pending", map[string]string{"cdi.kubevirt.io/clonePhase": "SnapshotClone"}, cdiv1.VolumeCloneSourceRef), nil, plan.Finished, 0},
		"an upload's":                 {claim("Pending", nil, cdiv1.VolumeUploadSourceRef), claim("Bound", nil, ""), plan.Taken, 2},
		"an old upload's":             {claim("Bound", map[string]string{claimorder.Upload: ""}, ""), nil, plan.Taken, 2},
		"an old upload's, done":       {claim("Bound", done, ""), nil, plan.Taken, 0},
		"an old import's, under way":  {claim("Bound", map[string]string{claimorder.Endpoint: "http://a/b"}, ""), nil, plan.Finished, 0},
		"an old import's, not begun":  {claim("Pending", map[string]string{claimorder.Endpoint: "http://a/b"}, ""), nil, plan.Taken, 1},
		"an order nobody understands": {claim("Pending", map[string]string{claimorder.Endpoint: "http://a/b", claimorder.Source: "imageio"}, ""), nil, plan.Refused, 0},
	} {
		facts, ordered := ofClaim(c.claim, c.prime)
		if p := plan.Decide(facts); ordered != (c.want != "") || ordered && (p.Verdict != c.want || len(p.Do) != c.do) {
			t.Errorf("%s: %t %+v", name, ordered, p)
		}
	}
}

// TestSources: DataSources and crons are taken as they are, but for the ones that Berth would not follow.
func TestSources(t *testing.T) {
	source := func(s cdiv1.DataSourceSource) *cdiv1.DataSource {
		return &cdiv1.DataSource{ObjectMeta: metav1.ObjectMeta{Namespace: "golden", Name: "debian"}, Spec: cdiv1.DataSourceSpec{Source: s}}
	}
	cron := func(r *cdiv1.DataVolumeSourceRegistry) *cdiv1.DataImportCron {
		return &cdiv1.DataImportCron{Spec: cdiv1.DataImportCronSpec{Template: cdiv1.DataVolume{
			Spec: cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{Registry: r}},
		}}}
	}
	for name, c := range map[string]struct{ got, want plan.Verdict }{
		"a claim beside it":       {ofSource(source(cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: "golden", Name: "a"}}), nil).Verdict, plan.Taken},
		"nothing yet":             {ofSource(source(cdiv1.DataSourceSource{}), nil).Verdict, plan.Taken},
		"another namespace's":     {ofSource(source(cdiv1.DataSourceSource{DataSource: &cdiv1.DataSourceRefSourceDataSource{Namespace: "team", Name: "a"}}), nil).Verdict, plan.Refused},
		"polls a registry":        {ofCron(cron(&cdiv1.DataVolumeSourceRegistry{URL: ptr.To("docker://a/b")})).Verdict, plan.Taken},
		"follows an image stream": {ofCron(cron(&cdiv1.DataVolumeSourceRegistry{ImageStream: ptr.To("a")})).Verdict, plan.Refused},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s", name, c.got)
		}
	}
}
