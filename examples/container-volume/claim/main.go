// Command claim makes a PersistentVolumeClaim for each volume it is asked for, in the machine's namespace, with the rights of the
// ServiceAccount of its pod. It is the least that a container can do: the guest fills the claim, or, with -source, the populator of the object that it
// names: a VolumeImportSource has an image copied into it, a VolumeUploadSource has it wait for an upload.
//
//	claim [-listen :443] [-class NAME] [-mode Filesystem|Block] [-source KIND/NAME]
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-vm/berth/examples/container-volume/serve"
)

func main() {
	m := &maker{}
	listen := flag.String("listen", ":443", "where to be asked")
	flag.StringVar(&m.class, "class", "", "StorageClass of the claims; empty: the cluster's own")
	flag.StringVar(&m.mode, "mode", "Filesystem", "volumeMode of the claims")
	flag.StringVar(&m.source, "source", "", "KIND/NAME of the object of cdi.kubevirt.io that the claims are filled from; empty: they are left empty")
	flag.Parse()
	log.Fatal(serve.Run(*listen, m))
}

type maker struct{ class, mode, source string }

// name of the claim: another machine of the same name has another.
func name(r serve.Request) string {
	return strings.ToLower(r.Machine+"-"+r.Volume) + "-" + r.UID[:min(8, len(r.UID))]
}

// Make creates the claim. One that is there is the one that an earlier question made: its name says for which machine.
func (m *maker) Make(ctx context.Context, r serve.Request) (string, error) {
	size := r.Size
	if size == "" {
		size = "1Gi"
	}
	spec := map[string]any{"accessModes": []string{"ReadWriteOnce"}, "volumeMode": m.mode,
		"resources": map[string]any{"requests": map[string]string{"storage": size}}}
	if m.class != "" {
		spec["storageClassName"] = m.class
	}
	if kind, name, ok := strings.Cut(m.source, "/"); ok {
		spec["dataSourceRef"] = map[string]string{"apiGroup": "cdi.kubevirt.io", "kind": kind, "name": name}
	}
	status, text, err := call(ctx, http.MethodPost, claims(r), map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim",
		"metadata": map[string]string{"name": name(r)}, "spec": spec})
	switch {
	case err != nil:
		return "", err
	case status == http.StatusCreated || status == http.StatusConflict:
		return fmt.Sprintf("pvc:\n  claimname: %s\n", name(r)), nil
	}
	return "", fmt.Errorf("create claim %s: %s", name(r), text)
}

// Delete deletes the claim, and says so when it is gone.
func (m *maker) Delete(ctx context.Context, r serve.Request) error {
	status, text, err := call(ctx, http.MethodDelete, claims(r)+"/"+name(r), nil)
	switch {
	case err != nil:
		return err
	case status == http.StatusNotFound:
		return nil
	case status/100 == 2:
		return serve.ErrNotYet
	}
	return fmt.Errorf("delete claim %s: %s", name(r), text)
}

func claims(r serve.Request) string {
	return "/api/v1/namespaces/" + r.Namespace + "/persistentvolumeclaims"
}

// call asks the API server as the pod's ServiceAccount.
func call(ctx context.Context, method, path string, body any) (int, string, error) {
	const account = "/var/run/secrets/kubernetes.io/serviceaccount"
	token, err := os.ReadFile(filepath.Join(account, "token"))
	if err != nil {
		return 0, "", fmt.Errorf("read the pod's token: %w", err)
	}
	authority, err := os.ReadFile(filepath.Join(account, "ca.crt"))
	if err != nil {
		return 0, "", fmt.Errorf("read the cluster's authority: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return 0, "", errors.New("the cluster's authority is no certificate")
	}
	var document bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&document).Encode(body); err != nil {
			return 0, "", fmt.Errorf("write the claim: %w", err)
		}
	}
	server := "https://" + net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	request, err := http.NewRequestWithContext(ctx, method, server+path, &document)
	if err != nil {
		return 0, "", fmt.Errorf("ask the API server: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	request.Header.Set("Content-Type", "application/json")
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	answer, err := client.Do(request)
	if err != nil {
		return 0, "", fmt.Errorf("ask the API server: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
	return answer.StatusCode, string(text), err
}
