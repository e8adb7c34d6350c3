//go:build apiserver

package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// dataVolumes is DataVolumes of a namespace as clients generated from the API module ask for them: client-go's REST client with the
// module's types. kubevirt's controllers and virtctl are such clients.
type dataVolumes struct {
	t *testing.T
	c rest.Interface
}

func newVolumes(t *testing.T) dataVolumes {
	t.Helper()
	config := rest.CopyConfig(baseCfg)
	config.GroupVersion, config.APIPath = &cdiv1.SchemeGroupVersion, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return dataVolumes{t, c}
}

func (v dataVolumes) request(r *rest.Request) *rest.Request {
	return r.Namespace(team).Resource("datavolumes")
}

// made returns a volume of this name, gone at the end of the test.
func (v dataVolumes) made(name string, change func(*cdiv1.DataVolume)) *cdiv1.DataVolume {
	v.t.Helper()
	u := object(dv(fromHTTP + "," + storage))
	u.SetName(name)
	create(v.t, admin, u)
	if change == nil {
		return v.get(name)
	}
	out := v.get(name)
	change(out)
	return v.must(v.put(out, ""))
}

func (v dataVolumes) must(out *cdiv1.DataVolume, err error) *cdiv1.DataVolume {
	v.t.Helper()
	if err != nil {
		v.t.Fatal(err)
	}
	return out
}

func (v dataVolumes) get(name string) *cdiv1.DataVolume {
	v.t.Helper()
	out := &cdiv1.DataVolume{}
	return v.must(out, v.request(v.c.Get()).Name(name).Do(v.t.Context()).Into(out))
}

// put is Update, or UpdateStatus with the subresource.
func (v dataVolumes) put(dv *cdiv1.DataVolume, subresource string) (*cdiv1.DataVolume, error) {
	out := &cdiv1.DataVolume{}
	r := v.request(v.c.Put()).Name(dv.Name)
	if subresource != "" {
		r = r.SubResource(subresource)
	}
	return out, r.Body(dv).Do(v.t.Context()).Into(out)
}

func (v dataVolumes) patch(name string, kind types.PatchType, body string, subresources ...string) (*cdiv1.DataVolume, error) {
	out := &cdiv1.DataVolume{}
	r := v.request(v.c.Patch(kind)).Name(name).SubResource(subresources...)
	if kind == types.ApplyPatchType {
		r = r.Param("fieldManager", "upstream").Param("force", "true")
	}
	return out, r.Body([]byte(body)).Do(v.t.Context()).Into(out)
}

// TestClientPatches: every kind of patch that clients of a custom resource send, with the answers they handle.
func TestClientPatches(t *testing.T) {
	v := newVolumes(t)
	made := v.made("patched", nil)
	for name, row := range map[string]struct {
		kind types.PatchType
		body string
		code int32 // of the refusal; 0: it is done
	}{
		// kubevirt's controllers test what they replace
		"JSON": {types.JSONPatchType, `[{"op":"test","path":"/metadata/resourceVersion","value":"` + made.ResourceVersion + `"},
			{"op":"add","path":"/metadata/labels","value":{"by":"JSON"}}]`, 0},
		"JSON, outdated":        {types.JSONPatchType, `[{"op":"test","path":"/metadata/uid","value":"another"},{"op":"add","path":"/metadata/labels","value":{"by":"no"}}]`, http.StatusUnprocessableEntity},
		"merge":                 {types.MergePatchType, `{"metadata":{"labels":{"by":"merge"}}}`, 0},
		"merge, outdated":       {types.MergePatchType, `{"metadata":{"resourceVersion":"1","labels":{"by":"no"}}}`, http.StatusConflict},
		"merge of the spec":     {types.MergePatchType, `{"spec":{"priorityClassName":"x"}}`, http.StatusUnprocessableEntity},
		"strategic merge":       {types.StrategicMergePatchType, `{"metadata":{"labels":{"by":"no"}}}`, http.StatusUnsupportedMediaType},
		"apply":                 {types.ApplyPatchType, `{"apiVersion":"cdi.kubevirt.io/v1beta1","kind":"DataVolume","metadata":{"labels":{"by":"apply"}}}`, 0},
		"apply, of another UID": {types.ApplyPatchType, `{"apiVersion":"cdi.kubevirt.io/v1beta1","kind":"DataVolume","metadata":{"uid":"another","labels":{"by":"no"}}}`, http.StatusUnprocessableEntity},
	} {
		t.Run(name, func(t *testing.T) {
			if row.kind == types.JSONPatchType && row.code == 0 {
				row.body = strings.Replace(row.body, made.ResourceVersion, v.get("patched").ResourceVersion, 1)
			}
			got, err := v.patch("patched", row.kind, row.body)
			switch {
			case row.code == 0 && (err != nil || got.Labels["by"] != strings.ToLower(name) && got.Labels["by"] != name):
				t.Errorf("labels %v, %v", got.Labels, err)
			case row.code != 0 && codeOf(err) != row.code:
				t.Errorf("answered %d, want %d: %v", codeOf(err), row.code, err)
			}
		})
	}
}

// codeOf returns the status of a refusal, 0 without one.
func codeOf(err error) int32 {
	if err == nil {
		return 0
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Code
	}
	return -1
}

// TestClientVersions: writes with a version that is not the newest are refused, lists and reads take the versions that caches send.
func TestClientVersions(t *testing.T) {
	v := newVolumes(t)
	old := v.made("versioned", nil)
	next := old.DeepCopy()
	next.Labels = map[string]string{"step": "1"}
	now := v.must(v.put(next, ""))
	next.Labels["step"] = "2"
	if _, err := v.put(next, ""); !apierrors.IsConflict(err) {
		t.Errorf("an update of an old version: %v", err)
	}
	next.ResourceVersion = ""
	if _, err := v.put(next, ""); codeOf(err) != http.StatusUnprocessableEntity {
		t.Errorf("an update without a version: %v", err)
	}
	same := v.must(v.put(now.DeepCopy(), ""))
	if same.ResourceVersion != now.ResourceVersion || same.Generation != old.Generation {
		t.Errorf("an update that changes nothing made version %s of %s, generation %d of %d", same.ResourceVersion, now.ResourceVersion, same.Generation, old.Generation)
	}
	v.made("versioned-too", nil)
	for name, o := range map[string]metav1.ListOptions{
		"newest": {}, "any": {ResourceVersion: "0"}, "not older": {ResourceVersion: now.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan},
	} {
		var list cdiv1.DataVolumeList
		if err := v.list(o, &list); err != nil || list.ResourceVersion == "" {
			t.Errorf("%s: %d volumes of version %q, %v", name, len(list.Items), list.ResourceVersion, err)
		}
	}
	var first, rest cdiv1.DataVolumeList
	if err := v.list(metav1.ListOptions{Limit: 1}, &first); err != nil || len(first.Items) != 1 || first.Continue == "" {
		t.Fatalf("the first page has %d volumes and continues with %q: %v", len(first.Items), first.Continue, err)
	}
	if err := v.list(metav1.ListOptions{Limit: 50, Continue: first.Continue}, &rest); err != nil || len(rest.Items) == 0 || rest.Items[0].Name == first.Items[0].Name {
		t.Errorf("the second page: %d volumes, %v", len(rest.Items), err)
	}
}

func (v dataVolumes) list(o metav1.ListOptions, into *cdiv1.DataVolumeList) error {
	return v.request(v.c.Get()).VersionedParams(&o, metav1.ParameterCodec).Do(v.t.Context()).Into(into)
}

// TestClientSelectors: a name and a namespace can be selected by field, and what is no such field is refused rather than ignored.
func TestClientSelectors(t *testing.T) {
	v := newVolumes(t)
	v.made("one", func(dv *cdiv1.DataVolume) { dv.Labels = map[string]string{"os": "linux"} })
	v.made("two", nil)
	for selector, want := range map[string]string{
		"field metadata.name=one":                          "one",
		"field metadata.name!=one":                         "two",
		"field metadata.namespace=team,metadata.name=two":  "two",
		"field metadata.namespace=other":                   "",
		"label os=linux":                                   "one",
		"label !os":                                        "two",
		"label os in (windows, linux)":                     "one",
		"field status.phase=Succeeded":                     "400",
		"field spec.source.http.url=https://example.com/x": "400",
	} {
		kind, text, _ := strings.Cut(selector, " ")
		o := metav1.ListOptions{FieldSelector: text}
		if kind == "label" {
			o = metav1.ListOptions{LabelSelector: text}
		}
		var list cdiv1.DataVolumeList
		err := v.list(o, &list)
		var names []string
		for _, item := range list.Items {
			names = append(names, item.Name)
		}
		got := strings.Join(names, " ")
		if err != nil {
			got = fmt.Sprint(codeOf(err))
		}
		if got != want {
			t.Errorf("%s: %s, want %s (%v)", selector, got, want, err)
		}
	}
}

// TestClientWatches: an informer's watch gets the state at its beginning, its end marked by a bookmark, and then the changes; one
// of a version that is long gone is told to begin again.
func TestClientWatches(t *testing.T) {
	v := newVolumes(t)
	v.made("watched", nil)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	o := metav1.ListOptions{
		Watch: true, AllowWatchBookmarks: true, SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		FieldSelector: "metadata.name=watched",
	}
	w, err := v.request(v.c.Get()).VersionedParams(&o, metav1.ParameterCodec).Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	expect := func(kind watch.EventType, is func(*cdiv1.DataVolume) bool) {
		t.Helper()
		event, open := <-w.ResultChan()
		got, ok := event.Object.(*cdiv1.DataVolume)
		if !open || event.Type != kind || !ok || !is(got) {
			t.Fatalf("got %s %+v, want %s", event.Type, event.Object, kind)
		}
	}
	expect(watch.Added, func(dv *cdiv1.DataVolume) bool { return dv.Name == "watched" })
	expect(watch.Bookmark, func(dv *cdiv1.DataVolume) bool {
		return dv.Annotations[metav1.InitialEventsAnnotationKey] == "true" && dv.ResourceVersion != ""
	})
	v.must(v.patch("watched", types.MergePatchType, `{"metadata":{"labels":{"a":"b"}}}`))
	expect(watch.Modified, func(dv *cdiv1.DataVolume) bool { return dv.Labels["a"] == "b" })
	if err := v.request(v.c.Delete()).Name("watched").Do(ctx).Error(); err != nil {
		t.Fatal(err)
	}
	expect(watch.Deleted, func(dv *cdiv1.DataVolume) bool { return dv.Name == "watched" })

	// without initial events, from a version on, as reflectors of older clients do
	v.made("watched-too", nil)
	var list cdiv1.DataVolumeList
	if err := v.list(metav1.ListOptions{}, &list); err != nil {
		t.Fatal(err)
	}
	seconds := int64(20)
	since := metav1.ListOptions{Watch: true, AllowWatchBookmarks: true, ResourceVersion: list.ResourceVersion, TimeoutSeconds: &seconds}
	later, err := v.request(v.c.Get()).VersionedParams(&since, metav1.ParameterCodec).Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer later.Stop()
	v.must(v.patch("watched-too", types.MergePatchType, `{"metadata":{"labels":{"a":"b"}}}`))
	for event := range later.ResultChan() {
		if event.Type == watch.Modified {
			return
		}
	}
	t.Error("a watch since a version heard of no change")
}

// TestClientDeletes: the ways to delete that clients choose, and the conditions they put.
func TestClientDeletes(t *testing.T) {
	v := newVolumes(t)
	remove := func(name string, o metav1.DeleteOptions) error {
		return v.request(v.c.Delete()).Name(name).Body(&o).Do(t.Context()).Error()
	}
	made := v.made("guarded", nil)
	other := types.UID("another")
	if err := remove("guarded", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}}); !apierrors.IsConflict(err) {
		t.Errorf("a volume of another UID was deleted: %v", err)
	}
	if err := remove("guarded", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &made.UID, ResourceVersion: ptr.To("1")}}); !apierrors.IsConflict(err) {
		t.Errorf("a volume of another version was deleted: %v", err)
	}
	for policy, finalizer := range map[metav1.DeletionPropagation]string{
		metav1.DeletePropagationForeground: metav1.FinalizerDeleteDependents, metav1.DeletePropagationOrphan: metav1.FinalizerOrphanDependents,
		metav1.DeletePropagationBackground: "",
	} {
		name := strings.ToLower(string(policy))
		v.made(name, nil)
		if err := remove(name, metav1.DeleteOptions{PropagationPolicy: &policy, DryRun: []string{metav1.DryRunAll}}); err != nil || v.get(name).DeletionTimestamp != nil {
			t.Errorf("a dry run of deleting %s: %v", name, err)
		}
		if err := remove(name, metav1.DeleteOptions{PropagationPolicy: &policy, GracePeriodSeconds: ptr.To(int64(0))}); err != nil {
			t.Errorf("delete %s: %v", name, err)
		}
		var left cdiv1.DataVolume // nobody collects garbage here, so that the order is to be seen
		err := v.request(v.c.Get()).Name(name).Do(t.Context()).Into(&left)
		if finalizer == "" && !apierrors.IsNotFound(err) || finalizer != "" && !slices.Contains(left.Finalizers, finalizer) {
			t.Errorf("deleted with %s: finalizers %v, %v", policy, left.Finalizers, err)
		}
	}
	v.made("many-1", func(dv *cdiv1.DataVolume) { dv.Labels = map[string]string{"many": ""} })
	v.made("many-2", func(dv *cdiv1.DataVolume) { dv.Labels = map[string]string{"many": ""} })
	if err := v.request(v.c.Delete()).VersionedParams(&metav1.ListOptions{LabelSelector: "many"}, metav1.ParameterCodec).Do(t.Context()).Error(); err != nil {
		t.Errorf("delete a collection: %v", err)
	}
	var list cdiv1.DataVolumeList
	if err := v.list(metav1.ListOptions{LabelSelector: "many"}, &list); err != nil || len(list.Items) != 0 {
		t.Errorf("%d are left of a deleted collection, %v", len(list.Items), err)
	}
}

// TestClientSubresources: status is written apart from the spec, and the right to clone is one to a subresource.
func TestClientSubresources(t *testing.T) {
	v := newVolumes(t)
	made := v.made("split", nil)
	both := made.DeepCopy()
	both.Status.Phase, both.Labels = cdiv1.Failed, map[string]string{"a": "b"}
	if got := v.must(v.put(both, "")); got.Status.Phase == cdiv1.Failed || got.Labels["a"] != "b" {
		t.Errorf("an update of the volume wrote its status: %+v", got.Status)
	}
	status := v.get("split")
	status.Status.Phase, status.Status.Progress, status.Labels = cdiv1.ImportInProgress, "12.50%", map[string]string{"a": "c"}
	if got := v.must(v.put(status, "status")); got.Status.Phase != cdiv1.ImportInProgress || got.Labels["a"] != "b" || got.Generation != made.Generation {
		t.Errorf("an update of the status: %s, labels %v, generation %d", got.Status.Phase, got.Labels, got.Generation)
	}
	got := v.must(v.patch("split", types.JSONPatchType, `[{"op":"replace","path":"/status/phase","value":"Succeeded"}]`, "status"))
	if got.Status.Phase != cdiv1.Succeeded || got.Status.Progress != "12.50%" {
		t.Errorf("a patch of the status: %+v", got.Status)
	}
	var table metav1.Table
	raw, err := v.request(v.c.Get()).Name("split").SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(t.Context()).Raw()
	if err != nil || json.Unmarshal(raw, &table) != nil {
		t.Fatalf("no table: %v", err)
	}
	var columns []string
	for _, c := range table.ColumnDefinitions {
		columns = append(columns, c.Name)
	}
	if want := "Name Phase Progress Restarts Age"; strings.Join(columns, " ") != want || fmt.Sprint(table.Rows[0].Cells[1:3]) != "[Succeeded 12.50%]" {
		t.Errorf("kubectl shows %v: %v", columns, table.Rows[0].Cells)
	}
	for user, want := range map[string]bool{"alice": true, "bob": false} {
		as := rest.CopyConfig(baseCfg)
		as.Impersonate.UserName = user
		review, err := kubernetes.NewForConfigOrDie(as).AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: golden, Verb: "create", Group: "cdi.kubevirt.io", Resource: "datavolumes", Subresource: "source",
			}},
		}, metav1.CreateOptions{})
		if err != nil || review.Status.Allowed != want {
			t.Errorf("%s may clone out of %s: %+v, %v", user, golden, review, err)
		}
	}
}

// TestClientFields: what a client of a newer API writes is told apart from what it misspells, as it asked for.
func TestClientFields(t *testing.T) {
	v := newVolumes(t)
	body := []byte(`{"apiVersion":"cdi.kubevirt.io/v1beta1","kind":"DataVolume","metadata":{"name":"fields"},"spec":{
		"source":{"blank":{}},"storge":{},"storage":{"resources":{"requests":{"storage":"1Gi"}}}}}`)
	post := func(validation string) rest.Result {
		return v.request(v.c.Post()).Param("fieldValidation", validation).Param("dryRun", "All").Body(body).Do(t.Context())
	}
	if err := post("Strict").Error(); err == nil || !strings.Contains(err.Error(), `unknown field "spec.storge"`) {
		t.Errorf("a misspelt field was taken: %v", err)
	}
	warned := post("Warn")
	if w := warned.Warnings(); warned.Error() != nil || len(w) != 1 || !strings.Contains(w[0].Text, "spec.storge") {
		t.Errorf("warnings %v, %v", w, warned.Error())
	}
	if err := post("Ignore").Error(); err != nil {
		t.Error(err)
	}
}
