package iscsi

import (
	"crypto/md5" //nolint:gosec // it is what CHAP is; the secret is not to be reused elsewhere
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Stages of a login.
const (
	stageSecurity, stageOperational, stageFull = 0, 1, 3
)

// Why a login is refused: class and detail of RFC 7143.
var (
	badRequest    = [2]byte{2, 0}
	badLogin      = [2]byte{2, 1}
	noTarget      = [2]byte{2, 3}
	noSuchSession = [2]byte{2, 10}
)

// login is a login under way.
type login struct {
	target        *Target
	user, secret  string
	round         int
	challenge     []byte
	id            byte
	authenticated bool

	discovery bool
	segment   int // what the initiator takes in one message
	burst     int // and in one sequence of them
}

// refused is an answer that ends a login.
type refused struct {
	status [2]byte
	why    error
}

func (r *refused) Error() string { return "login: " + r.why.Error() }
func (r *refused) Unwrap() error { return r.why }

func refuse(status [2]byte, format string, args ...any) error {
	return &refused{status, fmt.Errorf(format, args...)}
}

// step answers one message of a login; done says that it is the last.
func (l *login) step(p *pdu) (a *pdu, done bool, err error) {
	a = answer(p, opLoginDone)
	copy(a.head[8:16], p.head[8:16]) // who the session is
	if out, next, stepErr := l.negotiate(p); stepErr != nil {
		err = stepErr
	} else {
		stage := p.head[1] >> 2 & 3
		a.data = text(out...)
		a.head[1] = stage << 2
		if next >= 0 {
			a.head[1] |= final | byte(next)
			done = next == stageFull
		}
		if done {
			be.PutUint16(a.head[14:], 1) // the session's handle
		}
		return a, done, nil
	}
	var no *refused
	if !errors.As(err, &no) {
		no = &refused{status: badRequest}
	}
	a.head[1] = 0
	a.head[36], a.head[37] = no.status[0], no.status[1]
	return a, false, err
}

// negotiate returns what to say, and the stage that follows; -1 if this one continues.
func (l *login) negotiate(p *pdu) (out []string, next int, err error) {
	if l.round++; l.round > loginRounds {
		return nil, 0, refuse(badRequest, "more than %d messages", loginRounds)
	}
	transit, stage, after := p.head[1]&final != 0, int(p.head[1]>>2&3), int(p.head[1]&3)
	if p.head[1]&0x40 != 0 {
		return nil, 0, refuse(badRequest, "text in several messages: %w", ErrProtocol)
	}
	if transit && (after <= stage || after == 2) {
		return nil, 0, refuse(badRequest, "from stage %d to %d: %w", stage, after, ErrProtocol)
	}
	if be.Uint16(p.head[14:]) != 0 {
		return nil, 0, refuse(noSuchSession, "a connection more for a session")
	}
	kv, err := keys(p.data)
	if err == nil {
		err = l.identify(kv)
	}
	if err != nil {
		return nil, 0, err
	}
	switch stage {
	case stageSecurity:
		out, transit, err = l.security(kv, transit)
	case stageOperational:
		out, err = l.operational(kv)
	default:
		err = refuse(badRequest, "stage %d: %w", stage, ErrProtocol)
	}
	if err != nil {
		return nil, 0, err
	}
	if l.round == 1 && !l.discovery {
		out = append(out, "TargetPortalGroupTag=1")
	}
	if !transit {
		return out, -1, nil
	}
	return out, after, nil
}

// identify reads who wants what, which the first message says.
func (l *login) identify(kv map[string]string) error {
	if l.round > 1 {
		return nil
	}
	if kv["InitiatorName"] == "" {
		return refuse([2]byte{2, 7}, "no InitiatorName")
	}
	l.discovery = kv["SessionType"] == "Discovery"
	switch name, ok := kv["TargetName"]; {
	case l.discovery:
	case !ok:
		return refuse([2]byte{2, 7}, "no TargetName")
	case name != l.target.Name:
		return refuse(noTarget, "there is no target %q", name)
	}
	return nil
}

// security asks for a proof if the target has a secret.
func (l *login) security(kv map[string]string, transit bool) ([]string, bool, error) {
	switch {
	case l.secret == "":
		l.authenticated = true
		if kv["AuthMethod"] == "" {
			return nil, transit, nil
		}
		if !slices.Contains(strings.Split(kv["AuthMethod"], ","), "None") {
			return nil, false, refuse(badLogin, "the initiator wants to prove itself, and there is no secret here")
		}
		return []string{"AuthMethod=None"}, transit, nil
	case kv["CHAP_R"] != "":
		return nil, transit, l.proof(kv)
	case kv["CHAP_A"] != "":
		if !slices.Contains(strings.Split(kv["CHAP_A"], ","), "5") || l.challenge != nil {
			return nil, false, refuse(badLogin, "no algorithm of CHAP that both have")
		}
		fresh := make([]byte, 17)
		_, _ = rand.Read(fresh) // it never fails
		l.id, l.challenge = fresh[0], fresh[1:]
		return []string{"CHAP_A=5", "CHAP_I=" + strconv.Itoa(int(l.id)), "CHAP_C=0x" + hex.EncodeToString(l.challenge)}, false, nil
	case l.authenticated:
		return nil, transit, nil
	case slices.Contains(strings.Split(kv["AuthMethod"], ","), "CHAP"):
		return []string{"AuthMethod=CHAP"}, false, nil
	}
	return nil, false, refuse(badLogin, "without CHAP")
}

// proof judges what was made of the challenge. A challenge is good for one try.
func (l *login) proof(kv map[string]string) error {
	challenge := l.challenge
	l.challenge = nil
	got, err := binaryValue(kv["CHAP_R"])
	if err != nil || challenge == nil {
		return refuse(badLogin, "CHAP: no proof for a challenge of ours")
	}
	if kv["CHAP_C"] != "" || kv["CHAP_I"] != "" {
		return refuse(badLogin, "the initiator wants the target to prove itself: mutual CHAP is not served")
	}
	want := md5.Sum(slices.Concat([]byte{l.id}, []byte(l.secret), challenge)) //nolint:gosec // as above
	user := subtle.ConstantTimeCompare([]byte(kv["CHAP_N"]), []byte(l.user))
	if user&subtle.ConstantTimeCompare(got, want[:]) != 1 {
		return refuse(badLogin, "CHAP: wrong user or secret")
	}
	l.authenticated = true
	return nil
}

// binaryValue reads a value in base 16 or 64.
func binaryValue(s string) ([]byte, error) {
	if len(s) < 2 {
		return nil, ErrProtocol
	}
	switch prefix, digits := strings.ToLower(s[:2]), s[2:]; prefix {
	case "0x":
		return hex.DecodeString(digits)
	case "0b":
		return base64.StdEncoding.DecodeString(digits)
	}
	return nil, ErrProtocol
}

// answers to negotiable keys. Numbers are limits; the smaller one applies.
var answers = map[string]string{
	"HeaderDigest": "None", "DataDigest": "None", "InitialR2T": "Yes", "ImmediateData": "No", "MaxConnections": "1", "MaxOutstandingR2T": "1",
	"DefaultTime2Wait": "2", "DefaultTime2Retain": "0", "DataPDUInOrder": "Yes", "DataSequenceInOrder": "Yes", "ErrorRecoveryLevel": "0",
	"IFMarker": "No", "OFMarker": "No", "FirstBurstLength": "8192",
}

// declared are keys that the initiator declares and that need no answer.
var declared = []string{"InitiatorName", "InitiatorAlias", "SessionType", "TargetName", "AuthMethod"}

// operational settles how the two will talk.
func (l *login) operational(kv map[string]string) ([]string, error) {
	if l.secret != "" && !l.authenticated {
		return nil, refuse(badLogin, "without CHAP")
	}
	out := []string{fmt.Sprintf("MaxRecvDataSegmentLength=%d", longestData)}
	names := make([]string, 0, len(kv))
	for k := range kv {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		switch known, ok := answers[k]; {
		case k == "MaxRecvDataSegmentLength":
			l.segment = size(kv[k], l.segment)
		case k == "MaxBurstLength":
			l.burst = size(kv[k], l.burst)
			out = append(out, fmt.Sprintf("MaxBurstLength=%d", l.burst))
		case ok:
			out = append(out, k+"="+known)
		case !slices.Contains(declared, k):
			out = append(out, k+"=NotUnderstood")
		}
	}
	return out, nil
}

// size reads a length; what makes no sense leaves it as it was.
func size(s string, was int) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 512 || n >= 1<<24 {
		return was
	}
	return min(n, chunk)
}
