package netserver

import (
	"fmt"
	"os"
	"path/filepath"
)

// Web is nginx with the files of a directory, at a plain and at a TLS port. Under /private/ it asks for the user and the
// password.
type Web struct {
	URL, SecureURL string // without a slash at the end
	User, Password string
	CA             []byte

	address     string
	plain, safe int
	dir         string
	p           *process
}

// StartWeb starts nginx. root has the files.
func StartWeb(address, dir, root string) (*Web, error) {
	w := &Web{User: "bob", Password: "a password of the web's", dir: dir, address: address}
	var err error
	if w.plain, err = FreePort(address); err != nil {
		return nil, err
	}
	if w.safe, err = FreePort(address); err != nil {
		return nil, err
	}
	c, err := newCertificates(address, dir)
	if err != nil {
		return nil, err
	}
	w.CA, w.URL, w.SecureURL = c.CA, fmt.Sprintf("http://%s:%d", address, w.plain), fmt.Sprintf("https://%s:%d", address, w.safe)
	if root, err = filepath.Abs(root); err != nil {
		return nil, fmt.Errorf("find the files to serve: %w", err)
	}
	// one process, so that nothing of it outlives a test that is killed
	conf := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/nginx.pid; error_log %[1]s/error.log;
events { worker_connections 256; }
http {
  access_log off; client_body_temp_path %[1]s/t1; proxy_temp_path %[1]s/t2; fastcgi_temp_path %[1]s/t3; uwsgi_temp_path %[1]s/t4; scgi_temp_path %[1]s/t5;
  server {
    listen %[2]s:%[3]d; listen %[2]s:%[4]d ssl; ssl_certificate %[1]s/server-cert.pem; ssl_certificate_key %[1]s/server-key.pem;
    root %[5]s;
    location /private/ { alias %[5]s/; auth_basic x; auth_basic_user_file %[1]s/users; }
    location = /inside { return 302 http://127.0.0.1:8081/ready; }
  }
}
`, dir, address, w.plain, w.safe, root)
	for name, text := range map[string]string{"nginx.conf": conf, "users": w.User + ":{PLAIN}" + w.Password + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("configure nginx: %w", err)
		}
	}
	return w, w.Start()
}

// Start starts the server again after Stop.
func (w *Web) Start() error {
	var err error
	w.p, err = start(filepath.Join(w.dir, "nginx.log"), nil, "nginx", "-e", filepath.Join(w.dir, "error.log"), "-c", filepath.Join(w.dir, "nginx.conf"))
	if err != nil {
		return err
	}
	return w.p.await("nginx", func() error { return answers(w.address, w.safe) })
}

// Stop ends the server.
func (w *Web) Stop() { w.p.stop() }

// Close ends the server.
func (w *Web) Close() { w.Stop() }
