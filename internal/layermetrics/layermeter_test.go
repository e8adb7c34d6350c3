package layermetrics

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/berth-vm/berth/internal/transfer/layercache"
)

// TestMeter: each count is in its own metric, and a cache that does not answer is seen as that.
func TestMeter(t *testing.T) {
	counts, failed := layercache.Counts{Layers: 1, Bytes: 2, Bound: 3, Made: 4, Shared: 5, LetGo: 6, Refused: 7}, error(nil)
	m := Meter{Ask: func() (layercache.Counts, error) { return counts, failed }}
	names := map[string]string{"berth_layers": "1", "berth_layers_bytes": "2", "berth_layers_limit_bytes": "3", "berth_layers_made_total": "4",
		"berth_layers_shared_total": "5", "berth_layers_evicted_total": "6", "berth_layers_refused_total": "7", "berth_layers_up": "1"}
	text := func() string {
		all := prometheus.NewRegistry()
		all.MustRegister(m)
		w := httptest.NewRecorder()
		promhttp.HandlerFor(all, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return "\n" + w.Body.String()
	}
	page := text()
	for name, value := range names {
		if !strings.Contains(page, "\n"+name+" "+value+"\n") {
			t.Errorf("%s is not %s:%s", name, value, page)
		}
	}
	failed = errors.New("away")
	if page := text(); !strings.Contains(page, "\nberth_layers_up 0\n") || strings.Contains(page, "berth_layers_bytes") {
		t.Errorf("a cache that does not answer: %s", page)
	}
}
