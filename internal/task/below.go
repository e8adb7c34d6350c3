package task

import (
	"net/url"
	"path"
)

// Below is the file with that path in the directory whose address s is.
func (s Source) Below(name string) (Source, error) {
	switch {
	case s.HTTP != nil:
		at := *s.HTTP
		err := below(&at.URL, name)
		return Source{HTTP: &at}, err
	case s.S3 != nil:
		at := *s.S3
		err := below(&at.URL, name)
		return Source{S3: &at}, err
	case s.GCS != nil:
		at := *s.GCS
		err := below(&at.URL, name)
		return Source{GCS: &at}, err
	}
	return Source{}, Errorf(BadTask, "files in a directory are read by http, s3 or gcs, and from no other source")
}

// below makes the URL of a directory that of a file in it. What follows a question mark stays: it may be what lets the file be read.
func below(raw *string, name string) error {
	u, err := url.Parse(*raw)
	if err != nil { // which repeats the URL, and that may hold a password
		return Errorf(BadTask, "the address of the directory of %s cannot be parsed", name)
	}
	u.Path, u.RawPath = path.Join("/", u.Path, name), ""
	*raw = u.String()
	return nil
}
