package registry

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source/httpaccess"
)

// dockerFile is the key of a Secret of the type kubernetes.io/dockerconfigjson.
const dockerFile = ".dockerconfigjson"

// login returns how to prove oneself to the registry of ref.
func login(t task.Registry, ref name.Reference) (authn.Authenticator, error) {
	if t.CredentialsDir == "" {
		return authn.Anonymous, nil
	}
	text, err := httpaccess.ReadFile(t.CredentialsDir, dockerFile)
	if err == nil {
		return dockerLogin([]byte(text), ref.Context())
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	c, _, err := httpaccess.Login(t.Access)
	if err != nil {
		return nil, err
	}
	return &authn.Basic{Username: c.User, Password: c.Secret}, nil
}

// dockerLogin looks up a repository in Docker's configuration file. One that does not speak of it means anonymous, as it
// does for the kubelet: the secret may be there for other images.
func dockerLogin(text []byte, repo name.Repository) (authn.Authenticator, error) {
	var file struct {
		Auths map[string]authn.AuthConfig `json:"auths"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, task.Errorf(task.SourceDenied, "%s in the source's secret is not valid", dockerFile)
	}
	best, found := -1, authn.AuthConfig{}
	for key, c := range file.Auths {
		if n := match(key, repo); n > best {
			best, found = n, c
		}
	}
	if best < 0 {
		return authn.Anonymous, nil
	}
	return authn.FromConfig(found), nil
}

// match returns how specifically a key of the file speaks of repo: -1 not at all, else how long a path it names.
func match(key string, repo name.Repository) int {
	if !strings.Contains(key, "://") {
		key = "https://" + key
	}
	u, err := url.Parse(key)
	if err != nil {
		return -1
	}
	host := u.Host
	if host == "docker.io" || host == "registry-1.docker.io" {
		host = name.DefaultRegistry
	}
	if host != repo.RegistryStr() {
		return -1
	}
	path := strings.Trim(u.Path, "/")
	if path == "" || path == "v1" || path == "v2" {
		return 0
	}
	if path == repo.RepositoryStr() || strings.HasPrefix(repo.RepositoryStr(), path+"/") {
		return len(path)
	}
	return -1
}
