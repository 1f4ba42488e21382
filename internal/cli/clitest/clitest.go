// Package clitest has what tests of several commands need: SSH keys, and an end for a command that goes on until it is
// stopped.
package clitest

import (
	"bytes"
	"crypto/ed25519"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/theseus-cni/theseus/internal/safeio/signed"
)

// Key makes the SSH key of alice@example.com, and returns its file and a list of signers with her alone. The key is
// encrypted if there is a passphrase.
func Key(t testing.TB, passphrase string) (file string, people []signed.Signer) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	public, err := ssh.NewPublicKey(private.Public())
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "key")
	for name, text := range map[string][]byte{file: pem.EncodeToMemory(block),
		file + ".list": append([]byte("alice@example.com "), ssh.MarshalAuthorizedKey(public)...)} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if people, err = signed.ReadSigners(file + ".list"); err != nil {
		t.Fatal(err)
	}
	return file, people
}

// Ending is a writer to out that calls stop when a write contains the text.
func Ending(out io.Writer, text string, stop func()) io.Writer {
	return &ending{out, []byte(text), stop}
}

type ending struct {
	io.Writer
	text []byte
	stop func()
}

func (e *ending) Write(written []byte) (int, error) {
	if bytes.Contains(written, e.text) {
		e.stop()
	}
	return e.Writer.Write(written)
}
