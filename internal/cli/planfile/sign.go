package planfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/safeio/outfile"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
	"github.com/theseus-cni/theseus/internal/safeio/signed"
)

// Sign writes a signature of a plan's file next to it.
func Sign(a *app.App, file string, p *plan.Plan, data []byte, key string) error {
	signature, err := signature(a, data, key)
	if err != nil {
		return err
	}
	name := file + ".sig"
	for n := 2; ; n++ {
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			break
		}
		name = fmt.Sprintf("%s.%d.sig", file, n)
	}
	if err := outfile.Write(name, signature); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Out,
		"signed %s (hash %s): %s\nto check it: ssh-keygen -Y verify -f LIST -I NAME -n %s -s %s < %s\n",
		p.Name, p.Hash, name, signed.Namespace, shell.Word(name), shell.Word(file))
	return err
}

// RegisterSign adds the flag that names the key of SignHash to a command. when is "" or says when the command approves.
func RegisterSign(command *cobra.Command, key *string, when string) {
	command.Flags().StringVar(key, "sign", "",
		when+"sign the approval with this SSH key; with a public one (.pub), the SSH agent signs")
}

// MaySign refuses a key for an approval that is not made: only the controller in the cluster needs approvals.
func MaySign(key string, inCluster bool) error {
	if key == "" || inCluster {
		return nil
	}
	return exit.Fail(exit.Usage, "add --in-cluster; to sign the plan's file: theseus sign PLAN --key KEY",
		"--sign is given without --in-cluster, and it signs an approval for the controller")
}

// SignHash returns a signature of the hash of a plan, for an Approval; none if no key is given.
func SignHash(a *app.App, p *plan.Plan, key string) (string, error) {
	if key == "" {
		return "", nil
	}
	made, err := signature(a, []byte(p.Hash), key)
	return string(made), err
}

// signature signs a message, and asks for the key's passphrase if it has one.
func signature(a *app.App, message []byte, key string) ([]byte, error) {
	return signed.Sign(message, key, func() ([]byte, error) { return passphrase(a) })
}

// passphrase asks for a key's passphrase on the terminal.
func passphrase(a *app.App) ([]byte, error) {
	in, ok := a.Terminal()
	if !ok {
		return nil, exit.Fail(exit.Usage, "let the SSH agent sign: ssh-add the key, and name its .pub file",
			"the key has a passphrase, and the input is not a terminal")
	}
	fmt.Fprint(a.Err, "Passphrase of the key: ")
	defer fmt.Fprintln(a.Err)
	return term.ReadPassword(int(in.Fd()))
}
