package web

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/virtctl/createvm"
	"github.com/berth-vm/berth/internal/virtctl/kube"
)

// choices are the values that the form of a new machine offers.
type choices struct {
	Namespaces, Images, Claims, Classes, Nodes, Types []string
	Namespace                                         string
}

// form is the page of a new machine.
func (s *Server) form(w http.ResponseWriter, r *http.Request, p *Person) {
	ctx := r.Context()
	if err := p.Store.Ready(ctx); err != nil {
		refuse(w, err)
		return
	}
	o, c := p.Store.Objects(), choices{Namespace: p.Client.Namespace}
	for _, i := range o.Golden() {
		if i.Ready {
			c.Images = append(c.Images, i.Namespace+"/"+i.Name)
		}
	}
	for _, d := range o.Disks() {
		if len(d.Machines) == 0 && d.Namespace == p.Client.Namespace {
			c.Claims = append(c.Claims, d.Name)
		}
	}
	for _, class := range o.AllClasses() {
		c.Classes = append(c.Classes, class.Name)
	}
	c.Nodes = o.NodeNames()
	if all, err := p.Client.Core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); err == nil { // who may not read them types one
		for _, n := range all.Items {
			c.Namespaces = append(c.Namespaces, n.Name)
		}
	}
	types := schema.GroupVersionResource{Group: "instancetype.kubevirt.io", Version: "v1beta1", Resource: "virtualmachineclusterinstancetypes"}
	if all, err := p.Client.Dynamic.Resource(types).List(ctx, metav1.ListOptions{}); err == nil { // a cluster may have none
		for _, t := range all.Items {
			c.Types = append(c.Types, t.GetName())
		}
	}
	slices.Sort(c.Types)
	s.write(w, page{Title: "New machine", Body: "new", Nav: "new", Choices: &c})
}

// wanted is the form as it is filled in.
type wanted struct {
	Namespace, Name                 string
	Source, Image, Claim, URL       string // what it boots from: one of the sources, and where that is
	Size, Class, Node, Type, Memory string
	User, Key                       string
	DataSize                        string // of a second, empty disk; empty: none
	Start                           bool
}

// options returns what virtctl create vm would have been told.
func (f wanted) options() (createvm.Options, error) {
	o := createvm.Options{
		Name: f.Name, Namespace: f.Namespace, RunStrategy: string(kubevirt.RunAlways), GracePeriod: 180, Memory: cmp.Or(f.Memory, "512Mi"),
		Instancetype: f.Type, Node: f.Node, CloudInit: createvm.CloudInit{Kind: "nocloud", User: f.User},
	}
	if !f.Start {
		o.RunStrategy = string(kubevirt.RunHalted)
	}
	if f.Key != "" {
		o.CloudInit.SSHKeys = []string{f.Key}
	}
	rest := ",name:root"
	for _, part := range []struct{ key, value string }{{"size", f.Size}, {"storageclass", f.Class}} {
		if part.value != "" {
			rest += "," + part.key + ":" + part.value
		}
	}
	missing := map[string]string{
		"image": f.Image, "http": f.URL, "registry": f.URL, "containerdisk": f.URL, "claim": f.Claim, "blank": "nothing to name",
	}
	if missing[f.Source] == "" {
		return o, errors.New("say what the machine boots from, and where that is")
	}
	switch f.Source {
	case "image":
		o.Imports = []string{"type:ds,src:" + f.Image + rest}
	case "http", "registry":
		o.Imports = []string{"type:" + f.Source + ",url:" + f.URL + rest}
	case "blank":
		o.Imports = []string{"type:blank" + rest}
	case "claim":
		o.Claims = []string{"src:" + f.Claim + ",name:root"}
	case "containerdisk":
		o.Containerdisks = []string{"src:" + f.URL + ",name:root"}
	}
	if f.DataSize != "" {
		data := "type:blank,name:data,size:" + f.DataSize
		if f.Class != "" {
			data += ",storageclass:" + f.Class
		}
		o.Imports = append(o.Imports, data)
	}
	return o, nil
}

func (f wanted) objects() ([]any, error) {
	o, err := f.options()
	if err != nil {
		return nil, err
	}
	objects, err := createvm.Objects(o)
	if inner := errors.Unwrap(err); inner != nil {
		err = inner // without the flag of the command line that it is about
	}
	return objects, err
}

// manifest writes the YAML of the form as it is, or what is wrong with it.
func (s *Server) manifest(w http.ResponseWriter, r *http.Request, _ *Person) {
	var f wanted
	if err := read(w, r, &f); err != nil {
		refuse(w, err)
		return
	}
	objects, err := f.objects()
	if err != nil {
		refuse(w, err)
		return
	}
	var b bytes.Buffer
	if err := createvm.Write(&b, objects...); err != nil {
		refuse(w, err)
		return
	}
	answerJSON(w, map[string]string{"manifest": b.String()})
}

// create creates the objects of the form. The machine, which is created last, is checked first: nothing is created from an invalid form.
func (s *Server) create(w http.ResponseWriter, r *http.Request, p *Person) {
	var f wanted
	err := read(w, r, &f)
	var objects []any
	if err == nil {
		objects, err = f.objects()
	}
	if err != nil {
		refuse(w, err)
		return
	}
	c, ctx := p.Client.In(f.Namespace), r.Context()
	if vm, ok := objects[len(objects)-1].(*kubevirt.VirtualMachine); ok {
		err = kube.Machines.Check(ctx, c, vm)
	}
	for _, object := range objects {
		if err != nil {
			break
		}
		switch o := object.(type) {
		case *cdiv1.VolumeImportSource:
			_, err = kube.ImportSources.Create(ctx, c, o)
		case *cdiv1.VolumeCloneSource:
			_, err = kube.CloneSources.Create(ctx, c.In(cmp.Or(o.Namespace, c.Namespace)), o)
		case *kubevirt.VirtualMachine:
			_, err = kube.Machines.Create(ctx, c, o)
		default:
			err = fmt.Errorf("nobody knows how to make a %T", object)
		}
	}
	if err != nil {
		refuse(w, err)
		return
	}
	answerJSON(w, map[string]string{"said": "The machine is made.", "at": "/machines/" + f.Namespace + "/" + f.Name})
}

func answerJSON(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) // the client is gone
}
