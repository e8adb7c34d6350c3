package disks

import (
	"encoding/json"
	"fmt"
	"strconv"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/domain"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// dataSource is a disk that cloud-init reads: its label and its files.
type dataSource struct {
	label string
	files map[string]content
}

// content is one file: as plain text, in base64, or in a mounted Secret under one of the keys.
type content struct {
	inline, encoded string
	secret          string
	keys            []string
}

// userData is the user's cloud-init configuration.
func userData(s *kubevirt.CloudInitSource) content {
	c := content{inline: s.UserData, encoded: s.UserDataBase64}
	if s.UserDataSecretRef != nil {
		c.secret, c.keys = launcherapi.UserDataMount, []string{"userdata", "userData"}
	}
	return c
}

// networkData is the user's network configuration; false if there is none.
func networkData(s *kubevirt.CloudInitSource) (content, bool) {
	c := content{inline: s.NetworkData, encoded: s.NetworkDataBase64}
	if s.NetworkDataSecretRef != nil {
		c.secret, c.keys = launcherapi.NetworkDataMount, []string{"networkdata", "networkData"}
	}
	return c, c.inline+c.encoded+c.secret != ""
}

// noCloud is cloud-init's NoCloud data source.
func noCloud(m launcherapi.Machine, s *kubevirt.CloudInitSource, keys []string) dataSource {
	meta := fmt.Sprintf("instance-id: %s.%s\nlocal-hostname: %s\n", m.Name, m.Namespace, hostname(m))
	for n, key := range keys {
		if n == 0 {
			meta += "public-keys:\n"
		}
		meta += "- " + strconv.Quote(key) + "\n" // YAML reads it as JSON does
	}
	d := dataSource{label: "cidata", files: map[string]content{"user-data": userData(s), "meta-data": {inline: meta}}}
	if c, ok := networkData(s); ok {
		d.files["network-config"] = c
	}
	return d
}

// configDrive is OpenStack's config drive.
func configDrive(m launcherapi.Machine, s *kubevirt.CloudInitSource, keys []string) dataSource {
	data := map[string]any{"instance_id": m.Name + "." + m.Namespace, "uuid": domain.UUID(m), "hostname": hostname(m)}
	if len(keys) > 0 {
		numbered := map[string]string{}
		for n, key := range keys {
			numbered[strconv.Itoa(n)] = key
		}
		data["public_keys"] = numbered
	}
	meta, _ := json.Marshal(data) // strings only: cannot fail
	d := dataSource{label: "config-2", files: map[string]content{
		"openstack/latest/user_data": userData(s), "openstack/latest/meta_data.json": {inline: string(meta)}}}
	if c, ok := networkData(s); ok {
		d.files["openstack/latest/network_data.json"] = c
	}
	return d
}

// hostname is the guest's host name.
func hostname(m launcherapi.Machine) string {
	if m.Spec.Hostname != "" {
		return m.Spec.Hostname
	}
	return m.Name
}
