package incluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

// Approved is what is known after a user has approved a plan.
type Approved struct {
	User string `json:"user"`
	// Already is true if the user had approved the plan before.
	Already bool `json:"already"`
	// Signed is true if the approval has a signature.
	Signed bool `json:"signed"`
	// By are the names of all users who have approved it; empty if this user may not list them.
	By []string `json:"by"`
}

// Refused says that the API server does not let a user approve.
type Refused struct {
	User string
	err  error
}

func (r *Refused) Error() string {
	return fmt.Sprintf("%s may not approve the plan: %v", r.User, r.err)
}
func (r *Refused) Unwrap() error { return r.err }

// Hint says what to do about it.
func (r *Refused) Hint() string {
	return "grant the right: theseus rights approve --for " + Subject(r.User) +
		" | kubectl apply -f -; or let another person run theseus approve"
}

// Subject is a user as `theseus rights --for` takes it.
func Subject(user string) string {
	return shell.Word(kube.SubjectText(user))
}

// Approve approves a plan in the name of the current user, with a signature of its hash, or none (""). It returns a
// *Refused if that user may not.
func Approve(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan, signature string) (Approved, error) {
	done := Approved{Signed: signature != ""}
	err := a.Patiently(ctx, app.Glance, func(ctx context.Context) (err error) {
		done.User, err = me(ctx, client)
		return err
	})
	if err != nil {
		return done, err
	}
	err = a.Patiently(ctx, app.Glance, func(ctx context.Context) error {
		created, err := journal.Approve(ctx, client.Dynamic, p.Name, p.Hash, done.User, signature)
		done.Already = !created
		return err
	})
	switch {
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		return done, &Refused{done.User, err}
	case apierrors.IsNotFound(err):
		return done, exit.Fail(exit.Failed, "install the chart, or upgrade it",
			"this cluster does not know the kind Approval: %w", err)
	case signature != "" && apierrors.IsBadRequest(err):
		return done, exit.Fail(exit.Failed, "upgrade the chart",
			"this cluster does not know signatures of approvals: %w", err)
	case err != nil:
		return done, err
	}
	done.By, err = by(ctx, a, client, p)
	return done, err
}

// ApproveAndSay approves a plan in the name of the current user as Approve does, and prints who has approved it. If
// that user may not, it prints who does what instead: the migration waits for another person. signs is ApprovedWith of
// the migration; "" if the controller has not counted yet.
func ApproveAndSay(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan, signature, signs string) error {
	done, err := Approve(ctx, a, client, p, signature)
	var refused *Refused
	if errors.As(err, &refused) {
		fmt.Fprintf(a.Err, "note: %s\nnote: another person can approve it: %s, with the hash %s\n",
			exit.OneLine(err.Error()), cmp.Or(signs, "theseus approve "+p.Name+" --plan FILE"), p.Hash)
		return nil
	}
	if err == nil {
		fmt.Fprintln(a.Err, done)
		done.Warn(a, signs)
	}
	return err
}

// Warn prints a note if the approval does not count because it is not signed. signs is ApprovedWith of the migration.
func (d Approved) Warn(a *app.App, signs string) {
	if signs != "" && !d.Signed {
		fmt.Fprintf(a.Err, "note: the controller counts only signed approvals: %s\n", signs)
	}
}

// Mine reports whether the current user has approved a plan.
func Mine(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan) (bool, error) {
	var user string
	err := a.Patiently(ctx, app.Glance, func(ctx context.Context) (err error) {
		user, err = me(ctx, client)
		return err
	})
	if err != nil {
		return false, err
	}
	names, err := by(ctx, a, client, p)
	return slices.Contains(names, user), err
}

// by are the names of the users who have approved a plan; none if the current user may not list them.
func by(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan) ([]string, error) {
	var approvals []v1alpha1.Approval
	err := a.Patiently(ctx, app.Glance, func(ctx context.Context) (err error) {
		approvals, err = journal.Approvals(ctx, client.Dynamic, p.Name, p.Hash)
		return err
	})
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	names := []string{}
	for _, one := range approvals {
		names = append(names, one.Spec.User)
	}
	return names, nil
}

// String says who has approved, for people.
func (d Approved) String() string {
	text := d.User + " has approved it"
	if d.Already {
		text = d.User + " had approved it before"
	}
	if d.Signed {
		text += ", with a signature"
	}
	if len(d.By) > 0 {
		text += fmt.Sprintf("; %s: %s", cluster.Count(len(d.By), "approval"), strings.Join(d.By, ", "))
	}
	return text
}

// me asks the API server for the name of the current user.
func me(ctx context.Context, client *kube.Client) (string, error) {
	ctx, cancel := client.Call(ctx)
	defer cancel()
	review, err := client.Typed.AuthenticationV1().SelfSubjectReviews().Create(ctx,
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", exit.Fail(exit.Failed, "apply the plan without --in-cluster",
			"approvals need Kubernetes 1.28 or later: this API server has no SelfSubjectReview")
	case err != nil:
		return "", fmt.Errorf("asking which user this is: %w", err)
	case review.Status.UserInfo.Username == "":
		return "", exit.Fail(exit.Failed, "check the user of the current context: kubectl auth whoami",
			"%w", errors.New("the API server does not say which user this is"))
	}
	return review.Status.UserInfo.Username, nil
}
