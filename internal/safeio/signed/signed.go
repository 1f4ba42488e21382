// Package signed signs files with SSH keys and checks such signatures, in the format of OpenSSH (PROTOCOL.sshsig): it
// accepts signatures of ssh-keygen -Y sign, and ssh-keygen -Y verify accepts its signatures.
package signed

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/theseus-cni/theseus/internal/safeio/infile"
)

// Namespace is the namespace of signatures of plans (ssh-keygen -n). Signatures with another namespace are not
// accepted.
const Namespace = "theseus"

// Error is an error of a key, a signature or a list of signers, with a hint.
type Error struct {
	Err    error
	Advice string
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Hint says how to fix the error.
func (e *Error) Hint() string { return e.Advice }

func wrong(advice, format string, args ...any) error {
	return &Error{fmt.Errorf(format, args...), advice}
}

// Sign signs a message with a key: a file with a private key, or one with a public key (.pub) whose private key is in
// the agent of SSH_AUTH_SOCK. passphrase is called if the file needs one.
func Sign(message []byte, keyFile string, passphrase func() ([]byte, error)) ([]byte, error) {
	signer, err := signerOf(keyFile, passphrase)
	if err != nil {
		return nil, err
	}
	signature, err := sshsig.Sign(bytes.NewReader(message), signer, sshsig.HashSHA512, Namespace)
	if err != nil {
		return nil, wrong("", "sign with %s: %w", keyFile, err)
	}
	return sshsig.Armor(signature), nil
}

func signerOf(file string, passphrase func() ([]byte, error)) (ssh.Signer, error) {
	data, err := infile.Read(file)
	if err != nil {
		return nil, wrong("name the file of an SSH key: --sign ~/.ssh/id_ed25519", "%w", err)
	}
	if public, _, _, _, err := ssh.ParseAuthorizedKey(data); err == nil {
		return fromAgent(file, public)
	}
	signer, err := ssh.ParsePrivateKey(data)
	var locked *ssh.PassphraseMissingError
	if errors.As(err, &locked) {
		secret, asked := passphrase()
		if asked != nil {
			return nil, asked
		}
		signer, err = ssh.ParsePrivateKeyWithPassphrase(data, secret)
	}
	if err != nil {
		return nil, wrong("give an SSH key, such as ssh-keygen -t ed25519 makes", "%s: %w", file, err)
	}
	return signer, nil
}

func fromAgent(file string, public ssh.PublicKey) (ssh.Signer, error) {
	socket := os.Getenv("SSH_AUTH_SOCK")
	if socket == "" {
		return nil, wrong("start one and add the key (ssh-add), or name the file of the private key",
			"%s is a public key, and there is no SSH agent (SSH_AUTH_SOCK)", file)
	}
	connection, err := net.Dial("unix", socket)
	if err != nil {
		return nil, wrong("start the agent, or name the file of the private key", "the SSH agent: %w", err)
	}
	signers, err := agent.NewClient(connection).Signers()
	if err != nil {
		return nil, wrong("name the file of the private key", "the SSH agent: %w", err)
	}
	for _, signer := range signers {
		if bytes.Equal(signer.PublicKey().Marshal(), public.Marshal()) {
			return signer, nil
		}
	}
	return nil, wrong("ssh-add the key", "the SSH agent does not have the key of %s", file)
}

// Signer is a line of a list of allowed signers.
type Signer struct {
	// Principals are the names of the signer in the line.
	Principals string
	Key        ssh.PublicKey
	// From and Until bound the time of signing, if they are set.
	From, Until time.Time
	namespaces  []string
}

const listHint = "use the format of ALLOWED SIGNERS in ssh-keygen(1): alice@example.com ssh-ed25519 AAAA..."

// ReadSigners reads a list of allowed signers, in the format of ssh-keygen.
func ReadSigners(file string) ([]Signer, error) {
	data, err := infile.Read(file)
	if err != nil {
		return nil, wrong(listHint, "%w", err)
	}
	var all []Signer
	for i, line := range strings.Split(string(data), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		signer, err := readSigner(line)
		if err != nil {
			return nil, wrong(listHint, "%s:%d: %w", file, i+1, err)
		}
		all = append(all, signer)
	}
	if len(all) == 0 {
		return nil, wrong(listHint, "%s has no signers", file)
	}
	return all, nil
}

func readSigner(line string) (Signer, error) {
	var s Signer
	rest := ""
	if quoted, ok := strings.CutPrefix(line, `"`); ok {
		s.Principals, rest, _ = strings.Cut(quoted, `"`)
	} else {
		s.Principals, rest, _ = strings.Cut(strings.ReplaceAll(line, "\t", " "), " ")
	}
	if strings.ContainsAny(s.Principals, ",*?!") { // several names of one person would count as several people
		return s, errors.New("name exactly one person in each line, without commas and wildcards")
	}
	key, _, options, more, err := ssh.ParseAuthorizedKey([]byte(strings.TrimSpace(rest)))
	if err != nil || s.Principals == "" || len(more) > 0 {
		return s, cmp.Or(err, errors.New("no principals and key"))
	}
	s.Key = key
	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		value = strings.Trim(value, `"`)
		switch strings.ToLower(name) {
		case "namespaces":
			s.namespaces = strings.Split(value, ",")
		case "valid-after":
			s.From, err = readTime(value)
		case "valid-before":
			s.Until, err = readTime(value)
		default:
			err = fmt.Errorf("the option %s is not supported", name)
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

// readTime reads YYYYMMDD[HHMM[SS]][Z]; without the Z, in this machine's time zone.
func readTime(text string) (time.Time, error) {
	zone := time.Local
	if bare, utc := strings.CutSuffix(text, "Z"); utc {
		text, zone = bare, time.UTC
	}
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		if at, err := time.ParseInLocation(layout, text, zone); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time such as 20260131", text)
}

// Check returns which of the signers signed a message, each once, sorted. signatures are files with one or more
// signatures each, by name. A signature of a key that is not on the list, of another message or with another namespace
// is an error that names it.
func Check(message []byte, signatures map[string][]byte, signers []Signer, now time.Time) ([]string, error) {
	who := map[string]bool{}
	for _, name := range sorted(signatures) {
		blocks, err := split(signatures[name])
		if err != nil {
			return nil, wrong("sign the file again: theseus sign PLAN --key KEY, or ssh-keygen -Y sign -n "+Namespace+
				" -f KEY PLAN", "%s: %w", name, err)
		}
		for _, block := range blocks {
			signer, err := check(message, block, signers, now)
			if err != nil {
				return nil, wrong("nothing was done: have the plan signed by people on the list, with the namespace "+
					Namespace, "%s: %w", name, err)
			}
			who[signer] = true
		}
	}
	return sorted(who), nil
}

func check(message []byte, signature *sshsig.Signature, signers []Signer, now time.Time) (string, error) {
	err := fmt.Errorf("the key %s is not on the list", ssh.FingerprintSHA256(signature.PublicKey))
	for _, s := range signers {
		if !bytes.Equal(s.Key.Marshal(), signature.PublicKey.Marshal()) {
			continue
		}
		switch {
		case s.namespaces != nil && !slices.Contains(s.namespaces, Namespace):
			err = fmt.Errorf("the list lets %s sign only for %s", s.Principals, strings.Join(s.namespaces, ", "))
			continue
		case !s.From.IsZero() && now.Before(s.From) || !s.Until.IsZero() && !now.Before(s.Until):
			err = fmt.Errorf("the key of %s is not valid at this time", s.Principals)
			continue
		}
		if err := sshsig.Verify(bytes.NewReader(message), signature, s.Key, signature.HashAlgorithm,
			Namespace); err != nil {
			return "", fmt.Errorf("the signature of %s is not for this plan, or not for %s: %w",
				s.Principals, Namespace, err)
		}
		return s.Principals, nil
	}
	return "", err
}

// split extracts the signatures from a file.
func split(data []byte) ([]*sshsig.Signature, error) {
	const end = "-----END SSH SIGNATURE-----"
	var all []*sshsig.Signature
	for rest := bytes.TrimSpace(data); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		at := bytes.Index(rest, []byte(end))
		if at < 0 {
			return nil, io.ErrUnexpectedEOF
		}
		signature, err := sshsig.Unarmor(rest[:at+len(end)])
		if err != nil {
			return nil, err
		}
		all, rest = append(all, signature), rest[at+len(end):]
	}
	if len(all) == 0 {
		return nil, errors.New("no signature")
	}
	return all, nil
}

func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
