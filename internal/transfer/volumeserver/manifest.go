package volumeserver

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/tlsserver"
)

// serveManifests answers for what the controller wrote, and for the Secret that it must not know.
func serveManifests(mux *http.ServeMux, e task.Export) {
	if len(e.Manifests) == 0 {
		return
	}
	mux.HandleFunc("GET /internal/manifests/all", func(w http.ResponseWriter, r *http.Request) { sendObjects(w, r, e.Manifests) })
	mux.HandleFunc("GET /internal/manifests/secret", func(w http.ResponseWriter, r *http.Request) {
		secret, err := headerSecret(e)
		if err != nil {
			http.Error(w, "there is no token for this export", http.StatusInternalServerError)
			return
		}
		sendObjects(w, r, []json.RawMessage{secret})
	})
}

// headerSecret returns the Secret by which an import shows the token.
func headerSecret(e task.Export) (json.RawMessage, error) {
	token, err := os.ReadFile(filepath.Join(e.TokenDir, "token"))
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": e.HeaderSecret},
		"stringData": map[string]string{"token": strings.ToLower(tlsserver.Token) + ":" + string(token)},
	})
}

// sendObjects sends objects as a List, as upstream does, or as documents of YAML if these are asked for. JSON is YAML.
func sendObjects(w http.ResponseWriter, r *http.Request, objects []json.RawMessage) {
	if !strings.Contains(r.Header.Get("Accept"), "application/yaml") {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects}) // the client is gone
		return
	}
	var out bytes.Buffer
	for _, o := range objects {
		out.WriteString("---\n")
		out.Write(o)
		out.WriteString("\n")
	}
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(out.Bytes())
}
