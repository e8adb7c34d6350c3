//go:build e2e

package chaos

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	uploadv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/upload/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/test/e2e/fixture"
	"github.com/berth-vm/berth/test/e2e/framework"
)

// away is how long a node is cut off, and a pool full: half of the times longer than the cluster takes to miss a node.
var away = []time.Duration{15 * time.Second, 60 * time.Second}

// faults are the possible faults, each as likely as the others. Those that last are in lasting until they are over.
func (c *chaos) faults() map[string]func() bool {
	pods := func(namespace string, labels client.MatchingLabels, grace int64) func() bool {
		return func() bool { return c.killPod(namespace, labels, grace) }
	}
	component := func(name string) client.MatchingLabels {
		return client.MatchingLabels{"app.kubernetes.io/component": name}
	}
	return map[string]func() bool{
		// without letting them finish anything
		"controller killed":   pods("berth", component("controller"), 0),
		"api killed":          pods("berth", component("api"), 0),
		"upload proxy killed": pods("berth", component("uploadproxy"), 0),
		"node agent killed":   pods("berth-node", nil, 0),
		// one second, so that the kubelet has ended them before other pods use their disks
		"driver killed":     pods("localdisk", nil, 1),
		"worker killed":     pods(c.Namespace, client.MatchingLabels{"app": "containerized-data-importer"}, 1),
		"kubelet killed":    func() bool { return c.killComponent(c.node() + "/kubelet") },
		"API server killed": func() bool { return c.killComponent("control/kube-apiserver") },
		cutOff:              c.cut,
		poolFull:            c.fill,
	}
}

// fault does one thing to the cluster.
func (c *chaos) fault() {
	c.T.Helper()
	for name, l := range c.lasting {
		if time.Now().After(l.due) {
			c.end(c.Env, name)
		}
	}
	all := c.faults()
	var least []string // those that happened least often, so that a minute has seen them all
	for name := range all {
		if len(least) == 0 || c.done[name] < c.done[least[0]] {
			least = []string{name}
		} else if c.done[name] == c.done[least[0]] {
			least = append(least, name)
		}
	}
	name := least[c.random.IntN(len(least))]
	if all[name]() {
		c.done[name]++
		c.T.Logf("%s %s", time.Now().Format("15:04:05"), name)
	}
}

// node is one of the cluster's nodes that have disks.
func (c *chaos) node() string {
	var nodes corev1.NodeList
	if err := c.Kube.List(c.Context(), &nodes); err != nil || len(nodes.Items) == 0 {
		return "node1" // the API server was killed a moment ago
	}
	return nodes.Items[c.random.IntN(len(nodes.Items))].Name
}

func (c *chaos) killPod(namespace string, labels client.MatchingLabels, grace int64) bool {
	var list corev1.PodList
	if err := c.Kube.List(c.Context(), &list, client.InNamespace(namespace), labels); err != nil || len(list.Items) == 0 {
		return false
	}
	pod := &list.Items[c.random.IntN(len(list.Items))]
	return c.Client.CoreV1().Pods(namespace).Delete(c.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &grace}) == nil
}

func (c *chaos) killComponent(name string) bool {
	c.T.Helper()
	framework.Kubebox(c.T, "kill", name)
	return true
}

// lasting is a fault that continues until it is ended.
type lasting struct {
	due time.Time
	end func(*framework.Env)
}

// lasts has a fault ended after a while, or by mend.
func (c *chaos) lasts(name string, end func(*framework.Env)) {
	c.lasting[name] = lasting{due: time.Now().Add(away[c.random.IntN(len(away))]), end: end}
}

func (c *chaos) end(e *framework.Env, name string) {
	c.T.Helper()
	l, on := c.lasting[name]
	if !on {
		return
	}
	if name == poolFull {
		c.end(e, cutOff) // nothing can be started on a node that is cut off, and it may be the same one
	}
	delete(c.lasting, name)
	l.end(e)
}

// reach waits for the API server, which may have been killed a moment ago.
func reach(e *framework.Env) {
	e.T.Helper()
	e.Wait("the API server", settle, func(ctx context.Context) (bool, string) {
		_, err := e.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

const (
	cutOff   = "node cut off"
	poolFull = "pool full"
)

// cut unplugs a node for a while.
func (c *chaos) cut() bool {
	c.T.Helper()
	if _, on := c.lasting[cutOff]; on {
		return false
	}
	node := c.node()
	framework.Kubebox(c.T, "node", "cut", node)
	c.lasts(cutOff, func(*framework.Env) { framework.Kubebox(c.T, "node", "start", node) })
	return true
}

// fill leaves no room in the pool of a node for a while.
func (c *chaos) fill() bool {
	c.T.Helper()
	if len(c.lasting) > 0 {
		return false // nothing can be started on a node that is cut off
	}
	reach(c.Env)
	node := c.node()
	c.full[node] = true
	// fallocate takes the room without writing it, so the machine's own disk is not filled.
	pool(c.Env, node, `n=$(df -k /pool | tail -n 1 | awk '{print $4}'); fallocate -l $(((n - 4096) * 1024)) /pool/.chaos; df -k /pool | tail -n 1`)
	c.lasts(poolFull, func(e *framework.Env) { reach(e); pool(e, node, "rm -f /pool/.chaos") })
	return true
}

// mend ends every fault that lasts.
func (c *chaos) mend(e *framework.Env) {
	c.T.Helper()
	c.end(e, cutOff)
	c.end(e, poolFull)
}

// send uploads an image until it has arrived: to a proxy that is killed, with tokens of a server that is, too.
func (c *chaos) send(name string, data []byte) {
	to := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // what is sent is no secret, and is compared in the end
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for over := time.After(2 * settle); ; {
		var dv cdiv1.DataVolume
		err := c.Kube.Get(c.Context(), client.ObjectKey{Namespace: c.Namespace, Name: name}, &dv)
		if err == nil && (dv.Status.Phase == cdiv1.Succeeded || dv.Status.Phase == cdiv1.Failed) {
			return
		}
		if err == nil && dv.Status.Phase == cdiv1.UploadReady {
			c.sendOnce(to, name, data)
		}
		select {
		case <-tick.C:
		case <-over:
			c.T.Errorf("the upload of %s never came to an end: %v, %s", name, err, fixture.ReadyMessageOf(&dv))
			return
		case <-c.Context().Done():
			return
		}
	}
}

func (c *chaos) sendOnce(to *http.Client, name string, data []byte) {
	body, err := json.Marshal(uploadv1.UploadTokenRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: "upload.cdi.kubevirt.io/v1beta1", Kind: "UploadTokenRequest"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.Namespace}, Spec: uploadv1.UploadTokenRequestSpec{PvcName: name},
	})
	if err != nil {
		return
	}
	answer, err := c.Client.CoreV1().RESTClient().Post().AbsPath("/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/"+c.Namespace+"/uploadtokenrequests").
		SetHeader("Content-Type", "application/json").Body(body).DoRaw(c.Context())
	var got uploadv1.UploadTokenRequest
	if err != nil || json.Unmarshal(answer, &got) != nil {
		return
	}
	req, err := http.NewRequestWithContext(c.Context(), http.MethodPost, c.door.URL+"/v1beta1/upload", bytes.NewReader(data))
	if err != nil {
		return
	}
	req.Header.Set("Authorization", "Bearer "+got.Status.Token)
	said, err := to.Do(req)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, said.Body)
	_ = said.Body.Close()
}
