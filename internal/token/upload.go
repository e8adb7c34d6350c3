package token

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Claim is the target of an upload. The UID prevents the use of a token for a later claim of the same name.
type Claim struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// uploadVersion is part of what is signed.
const uploadVersion = "berth.upload.v1"

// upload is the body of a token.
type upload struct {
	Claim
	Expires int64 `json:"expires"` // seconds since 1970
}

// Why an upload token is not accepted.
var (
	ErrUploadMalformed = errors.New("the upload token is malformed")
	ErrUploadForged    = errors.New("the upload token was not made by this installation, or its key was replaced")
	ErrUploadExpired   = errors.New("the upload token has expired; ask for another")
)

// SignUpload makes a token for c that holds until expires.
func SignUpload(key ed25519.PrivateKey, c Claim, expires time.Time) (string, error) {
	if len(key) != ed25519.PrivateKeySize {
		return "", fmt.Errorf("sign an upload token: the key has %d bytes instead of %d", len(key), ed25519.PrivateKeySize)
	}
	if c.Namespace == "" || c.Name == "" || c.UID == "" {
		return "", errors.New("sign an upload token: the claim is not fully named")
	}
	body, err := json.Marshal(upload{Claim: c, Expires: expires.Unix()})
	if err != nil {
		return "", fmt.Errorf("sign an upload token: %w", err)
	}
	encoding := base64.RawURLEncoding
	return encoding.EncodeToString(body) + "." + encoding.EncodeToString(ed25519.Sign(key, signed(body))), nil
}

// VerifyUpload returns which claim a token is for, if one of the keys signed it and it has not expired.
func VerifyUpload(keys []ed25519.PublicKey, proof string, now time.Time) (Claim, error) {
	head, tail, found := strings.Cut(proof, ".")
	if !found || len(proof) > maxSize || strings.ContainsAny(proof, "\r\n") { // base64 would overlook line breaks
		return Claim{}, ErrUploadMalformed
	}
	body, errBody := base64.RawURLEncoding.Strict().DecodeString(head)
	signature, errSignature := base64.RawURLEncoding.Strict().DecodeString(tail)
	if errBody != nil || errSignature != nil {
		return Claim{}, ErrUploadMalformed
	}
	for _, key := range keys {
		if len(key) != ed25519.PublicKeySize || !ed25519.Verify(key, signed(body), signature) {
			continue
		}
		var u upload
		if err := json.Unmarshal(body, &u); err != nil || u.Namespace == "" || u.Name == "" || u.UID == "" {
			return Claim{}, ErrUploadMalformed
		}
		if !now.Before(time.Unix(u.Expires, 0)) {
			return Claim{}, ErrUploadExpired
		}
		return u.Claim, nil
	}
	return Claim{}, ErrUploadForged
}

func signed(body []byte) []byte { return append([]byte(uploadVersion+"\x00"), body...) }
