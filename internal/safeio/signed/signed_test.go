package signed_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/safeio/signed"
)

// key makes a key with ssh-keygen, and returns its file and the line of a list that names its owner.
func key(t *testing.T, owner, kind string) (file, line string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), owner)
	run(t, "", "ssh-keygen", "-q", "-t", kind, "-N", "", "-C", owner, "-f", file)
	public, err := os.ReadFile(file + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	return file, owner + " " + strings.TrimSpace(string(public)) + "\n"
}

func run(t *testing.T, input string, name string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Stdin = strings.NewReader(input)
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return string(out)
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestBothWays: ssh-keygen verifies what is signed here, and what ssh-keygen signs is accepted here.
func TestBothWays(t *testing.T) {
	const message = "a plan\n"
	for _, kind := range []string{"ed25519", "rsa", "ecdsa"} {
		t.Run(kind, func(t *testing.T) {
			alice, aliceLine := key(t, "alice@example.com", kind)
			bob, bobLine := key(t, "bob@example.com", kind)
			list := write(t, "signers", "# the team\n"+aliceLine+bobLine)
			ours, err := signed.Sign([]byte(message), alice, nil)
			if err != nil {
				t.Fatal(err)
			}
			run(t, message, "ssh-keygen", "-Y", "verify", "-f", list, "-I", "alice@example.com", "-n", signed.Namespace,
				"-s", write(t, "sig", string(ours)))

			file := write(t, "plan.yaml", message)
			run(t, "", "ssh-keygen", "-q", "-Y", "sign", "-n", signed.Namespace, "-f", bob, file)
			theirs, err := os.ReadFile(file + ".sig")
			if err != nil {
				t.Fatal(err)
			}
			signers, err := signed.ReadSigners(list)
			if err != nil {
				t.Fatal(err)
			}
			who, err := signed.Check([]byte(message),
				map[string][]byte{"a": append(append(ours, '\n'), theirs...), "b": theirs}, signers, time.Now())
			if err != nil || strings.Join(who, " ") != "alice@example.com bob@example.com" {
				t.Errorf("%v signed: %v", who, err)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	const message = "a plan\n"
	alice, aliceLine := key(t, "alice@example.com", "ed25519")
	mallory, _ := key(t, "mallory", "ed25519")
	good, err := signed.Sign([]byte(message), alice, nil)
	if err != nil {
		t.Fatal(err)
	}
	strange, err := signed.Sign([]byte(message), mallory, nil)
	if err != nil {
		t.Fatal(err)
	}
	file := write(t, "plan.yaml", message)
	run(t, "", "ssh-keygen", "-q", "-Y", "sign", "-n", "git", "-f", alice, file)
	forGit, err := os.ReadFile(file + ".sig")
	if err != nil {
		t.Fatal(err)
	}
	option := func(text string) string { return strings.Replace(aliceLine, " ", " "+text+" ", 1) }
	for name, test := range map[string]struct{ message, signature, list, words string }{
		"edited":             {"another plan\n", string(good), aliceLine, "is not for this plan"},
		"nobody on the list": {message, string(strange), aliceLine, "is not on the list"},
		"for another use":    {message, string(forGit), aliceLine, "not for theseus"},
		"other namespaces":   {message, string(good), option(`namespaces="git,file"`), "sign only for git, file"},
		"over":               {message, string(good), option(`valid-before="20200101Z"`), "not valid at this time"},
		"not yet":            {message, string(good), option(`valid-after="29990101"`), "not valid at this time"},
		"cut short":          {message, string(good[:len(good)-20]), aliceLine, "unexpected EOF"},
		"no signature":       {message, "hello", aliceLine, "unexpected EOF"},
		"empty":              {message, "", aliceLine, "no signature"},
	} {
		t.Run(name, func(t *testing.T) {
			signers, err := signed.ReadSigners(write(t, "signers", test.list))
			if err != nil {
				t.Fatal(err)
			}
			who, err := signed.Check([]byte(test.message), map[string][]byte{"plan.yaml.sig": []byte(test.signature)},
				signers, time.Now())
			if err == nil || !strings.Contains(err.Error(), test.words) ||
				!strings.Contains(err.Error(), "plan.yaml.sig") {
				t.Errorf("%v signed: %v", who, err)
			}
		})
	}
	for name, list := range map[string]string{
		"nobody": "# none\n", "no key": "alice@example.com\n", "an authority": option("cert-authority"),
		"a bad time": option(`valid-after="soon"`), "two names": "alice@corp," + aliceLine,
		"a pattern": strings.Replace(aliceLine, "alice", "*", 1),
	} {
		if signers, err := signed.ReadSigners(write(t, "signers", list)); err == nil {
			t.Errorf("%s: %v", name, signers)
		}
	}
}

// TestPassphrase: a key with a passphrase asks for it.
func TestPassphrase(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locked")
	run(t, "", "ssh-keygen", "-q", "-t", "ed25519", "-N", "open sesame", "-f", file)
	if _, err := signed.Sign([]byte("x"), file,
		func() ([]byte, error) { return []byte("open sesame"), nil }); err != nil {
		t.Error(err)
	}
	if _, err := signed.Sign([]byte("x"), file, func() ([]byte, error) { return []byte("wrong"), nil }); err == nil {
		t.Error("a wrong passphrase is taken")
	}
}
