package hookpath

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/berth-vm/berth/internal/testing/enumerate"
	"github.com/berth-vm/berth/internal/testing/golden"
)

var began = time.Unix(1_800_000_000, 0)

// TestKeys: keys as a leader keeps them for hours. Whatever path the configurations have, every replica that has read the keys lately accepts it, and
// no path lasts.
func TestKeys(t *testing.T) {
	const plain = "/evict/pods"
	var have, read Keys // read is what a replica has that is as slow as one may be
	used := map[string]time.Time{}
	for second := range 3 * 3600 {
		now := began.Add(time.Duration(second) * time.Second)
		if second%10 == 0 {
			read = have
			have = have.Rotate(now, false)
		}
		path := have.Path(plain, now)
		if used[path].IsZero() {
			used[path] = now
		}
		if now.Sub(used[path]) > keyEvery+keyKnown {
			t.Fatalf("after %d s a path lasts since %s", second, used[path])
		}
		if got, ok := have.Open(path); !ok || got != plain {
			t.Fatalf("after %d s the path %s is not accepted: %q", second, path, got)
		}
		if _, ok := read.Open(path); second > 10 && !ok {
			t.Fatalf("after %d s a replica that read the keys a moment ago does not accept what is used", second)
		}
		if len(have) > 2 {
			t.Fatalf("after %d s there are %d keys", second, len(have))
		}
	}
	if len(used) < 17 {
		t.Errorf("three hours had %d paths", len(used))
	}
	for path, since := range used {
		if _, ok := have.Open(path); ok && since.Before(began.Add(2*time.Hour)) {
			t.Errorf("a path of %s is accepted after three hours", since)
		}
	}
}

// TestRenew: a new leader replaces the key, and one that was made a moment ago stays.
func TestRenew(t *testing.T) {
	first := Keys{}.Rotate(began, true)
	if again := first.Rotate(began.Add(time.Second), true); len(first) != 1 || len(again) != 1 {
		t.Errorf("keys are %d and then %d", len(first), len(again))
	}
	later := began.Add(2 * time.Minute)
	renewed := first.Rotate(later, true)
	if len(renewed) != 2 || renewed.Path("/x", later) != first.Path("/x", later) {
		t.Errorf("a key is used that no replica has read: %d", len(renewed))
	}
	later = later.Add(keyKnown)
	if renewed = renewed.Rotate(later, false); renewed.Path("/x", later) == first.Path("/x", later) {
		t.Error("a new leader did not replace the key")
	}
	odd := Keys{"1800000000": make([]byte, keySize), "x": make([]byte, keySize), "1800000001": []byte("short"), "99999999999": make([]byte, keySize)}
	if kept := odd.Rotate(began.Add(time.Second), false); len(kept) != 1 || kept["1800000000"] == nil {
		t.Errorf("of what is no key, these are kept: %v", kept)
	}
}

// TestOpen: a path opens with its own word and no other, and is one that the API server takes.
func TestOpen(t *testing.T) {
	keys := Keys{}.Rotate(began, false)
	path, other := keys.Path("/evict/pods", began), keys.Path("/authorise/datavolumes", began)
	for segment := range strings.SplitSeq(path[1:], "/") {
		if wrong := validation.IsDNS1123Subdomain(segment); wrong != nil {
			t.Errorf("the API server refuses %s: %v", segment, wrong)
		}
	}
	for _, wrong := range []string{
		"", "/", "/evict/pods", "//evict/pods", path + "/", path + "x", "/" + path, strings.ToUpper(path), path[:20],
		other[:1+wordLength] + "/evict/pods", "/" + strings.Repeat("0", wordLength) + "/evict/pods", path[:1+wordLength], path[:1+wordLength] + "evict/pods",
	} {
		if _, ok := keys.Open(wrong); ok {
			t.Errorf("%q is opened", wrong)
		}
		if _, ok := (Keys{}).Open(wrong); ok {
			t.Errorf("%q is opened without a key", wrong)
		}
	}
	if plain, ok := keys.Open(path); !ok || plain != "/evict/pods" {
		t.Errorf("%s opens %q", path, plain)
	}
}

// TestPlain: the plain paths open while a controller of an earlier version was seen a moment ago, and nothing but them.
func TestPlain(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(began)
	p := &Paths{Options: Options{Clock: clock, Paths: map[string]string{"a": "/validate/a"}}}
	opens := func(path string) bool { _, ok := p.Open(path); return ok }
	if opens("/validate/a") {
		t.Error("a plain path is open before anything is known")
	}
	p.plainUntil = began.Add(plainStays)
	if !opens("/validate/a") || opens("/validate/b") || opens("/") {
		t.Error("beside an earlier controller, the plain paths are open and nothing else")
	}
	clock.SetTime(began.Add(plainStays + time.Second))
	if opens("/validate/a") {
		t.Error("a plain path stays open")
	}
}

// TestTable: every situation of a webhook.
func TestTable(t *testing.T) {
	words := []string{"wanted", "accepted", "foreign"}
	axes := []enumerate.Axis[Facts]{
		{Count: len(words), Set: func(f *Facts, i int) string { f.Path = Present(i); return words[i] }},
		{Count: 2, Set: func(f *Facts, i int) string { f.Leads = i == 1; return []string{"-", "leads"}[i] }},
	}
	golden.Equal(t, "testdata/decisions.txt", "# path leads -> what is done\n"+enumerate.Table(axes, func(f Facts) string {
		if Write(f) {
			return "write"
		}
		return "leave"
	}))
}

// TestLabel: the pods that the manifests make say that they answer at paths with a word; without that they would count as of an earlier version.
func TestLabel(t *testing.T) {
	text, err := os.ReadFile("../../../config/controller/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, template, _ := strings.Cut(string(text), "template:")
	lines := strings.Split(template, "\n")
	if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(strings.TrimSpace(l), Label+": secret") }) {
		t.Errorf("the template of controllers has no label %s", Label)
	}
}
