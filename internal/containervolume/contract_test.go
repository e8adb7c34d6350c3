package containervolume

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestContractPage holds the OpenAPI document to the code: the path and its verbs, the fields of the request, what can be answered, its
// bounds, and that the examples in it are answers.
func TestContractPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/container-volumes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	type content map[string]struct {
		Example any `json:"example"`
	}
	type schema struct {
		Properties map[string]any `json:"properties"`
		Required   []string       `json:"required"`
	}
	var page struct {
		Info       struct{ Description string }
		Paths      map[string]map[string]any `json:"paths"`
		Components struct {
			Responses map[string]struct {
				Description string  `json:"description"`
				Content     content `json:"content"`
			} `json:"responses"`
			Schemas map[string]schema `json:"schemas"`
		} `json:"components"`
	}
	if err := yaml.Unmarshal(text, &page); err != nil {
		t.Fatal(err)
	}
	if verbs := slices.Sorted(maps.Keys(page.Paths[Path])); !slices.Equal(verbs, []string{"delete", "put"}) || len(page.Paths) != 1 {
		t.Errorf("it has other paths than %s: %v", Path, page.Paths)
	}
	raw, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Sorted(maps.Keys(page.Components.Schemas["Request"].Properties)), slices.Sorted(maps.Keys(fields)); !slices.Equal(got, want) {
		t.Errorf("the request has %v, the page says %v", want, got)
	}
	want := append(slices.Clone(kinds), "lun")
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(page.Components.Schemas["Source"].Properties)); !slices.Equal(got, want) {
		t.Errorf("an answer is one of %v, the page says %v", want, got)
	}
	source := page.Components.Responses["Source"]
	for _, bound := range []string{fmt.Sprintf("%d KiB", longest>>10), fmt.Sprintf("%.0f seconds", Patience.Seconds())} {
		if !strings.Contains(source.Description, bound) {
			t.Errorf("the page does not say %q", bound)
		}
	}
	if !strings.Contains(page.Info.Description, fmt.Sprintf("The port is %d", Port)) {
		t.Error("the page says another port")
	}
	for kind, c := range source.Content {
		document, ok := c.Example.(string)
		if !ok {
			b, err := json.Marshal(c.Example)
			if err != nil {
				t.Fatal(err)
			}
			document = string(b)
		}
		if _, err := Read([]byte(document)); err != nil {
			t.Errorf("the example of %s is no answer: %v", kind, err)
		}
	}
	if len(source.Content) != 2 {
		t.Errorf("%d examples", len(source.Content))
	}
}
