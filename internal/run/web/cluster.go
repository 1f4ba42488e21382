package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// Right is a permission in the namespace of Theseus, on its own kinds. Name may be empty.
type Right struct{ Verb, Resource, Name string }

// Cluster is the Gate of a page in the cluster. People sign in with a Kubernetes token, which their browser sends with each request.
// The API server says, to a client with that token, who that is and what that person may do. So the process of the page needs no
// permission to review tokens, and acts with none of its own.
type Cluster struct {
	// Feeds read the cluster with the permissions of this process.
	Feeds *Feeds
	// Acts are a migration's actions for a client of the person. may says whether that person has some rights.
	Acts func(client *kube.Client, migration string, may func(...Right) (bool, error)) (Actions, error)
	// Missing says how a user gets the rights to look.
	Missing func(user string) string

	version string
	host    string
	next    http.RoundTripper
	limit   chan struct{}
	origins *http.CrossOriginProtection
}

// maxReviews bounds how many requests are reviewed at once, as anyone may send some.
const maxReviews = 16

// looks are the rights of which a person needs all, to see a migration.
func looks(migration string) []Right {
	return []Right{{"get", "migrations", migration}, {"list", "journalpages", ""}, {"list", "planpages", ""}, {"list", "probereports", ""}}
}

// NewCluster makes the gate for the API server of a configuration, of which it uses no credentials.
func NewCluster(config *rest.Config, version string, feeds *Feeds) (*Cluster, error) {
	bare := rest.AnonymousClientConfig(config)
	bare.UserAgent = "theseus/" + version
	next, err := rest.TransportFor(bare)
	if err != nil {
		return nil, fmt.Errorf("the API server: %w", err)
	}
	address, _, err := rest.DefaultServerUrlFor(bare)
	if err != nil {
		return nil, fmt.Errorf("the API server %s: %w", bare.Host, err)
	}
	return &Cluster{Feeds: feeds, version: version, host: address.String(), next: next, limit: make(chan struct{}, maxReviews), origins: http.NewCrossOriginProtection()}, nil
}

// Ours implements Gate. The browser sends no credentials by itself. But a proxy before the page may add them.
func (c *Cluster) Ours(r *http.Request) *Refused {
	origin := r.Header.Get("Origin")
	from, err := url.Parse(origin)
	if c.origins.Check(r) != nil || origin != "" && (err != nil || from.Host != r.Host) || crossSite(r) {
		return &Refused{Code: http.StatusForbidden, Text: "requests from other sites are refused"}
	}
	return nil
}

// View implements Gate.
func (c *Cluster) View(r *http.Request, migration string) (*View, error) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if token == "" {
		return nil, &Refused{Code: http.StatusUnauthorized, Text: "Sign in to see the migrations of this cluster.", SignIn: true}
	}
	client, err := kube.New(&rest.Config{Host: c.host, Transport: transport.NewBearerAuthRoundTripper(token, c.next)}, c.version)
	if err != nil {
		return nil, err
	}
	person := &person{client: client, limit: c.limit}
	if person.name, err = person.who(r.Context()); err != nil {
		return nil, err
	}
	all, err := c.choice(r, person, migration)
	if err != nil {
		return nil, err
	}
	if migration == "" {
		migration = all[0]
	}
	check := func(ctx context.Context) error { return c.check(ctx, person, migration) }
	if err := check(r.Context()); err != nil {
		return nil, err
	}
	v := &View{User: person.name, Others: all, Check: check, Lacks: person.name + " lacks the rights for this: `theseus rights` prints them"}
	if slices.Contains([]string{"/plan", "/question", "/do"}, r.URL.Path) {
		if v.Actions, err = c.Acts(client, migration, func(rights ...Right) (bool, error) { return person.may(r.Context(), rights...) }); err != nil {
			return nil, err
		}
	}
	v.Feed, v.Close, err = c.Feeds.Open(r.Context(), migration)
	if apierrors.IsNotFound(err) {
		err = &Refused{Code: http.StatusNotFound, Text: "There is no migration " + migration + " in this cluster."}
	}
	return v, err
}

// choice lists the migrations that a person can choose, newest first, when the page asks for the plan.
func (c *Cluster) choice(r *http.Request, p *person, migration string) ([]string, error) {
	if migration != "" && r.URL.Path != "/plan" {
		return nil, nil
	}
	all, err := journal.List(r.Context(), p.client.Dynamic)
	switch {
	case apierrors.IsForbidden(err) && migration != "":
		return nil, nil // some may read one migration, and not list them
	case apierrors.IsForbidden(err):
		return nil, c.lacks(p, Right{"list", "migrations", ""})
	case err != nil:
		return nil, err
	case len(all) == 0 && migration == "":
		return nil, &Refused{Code: http.StatusNotFound, Text: "There is no migration in this cluster."}
	}
	var names []string
	for _, one := range all {
		names = append(names, one.Name)
	}
	return names, nil
}

// check says why a person may not look; nil if that person may.
func (c *Cluster) check(ctx context.Context, p *person, migration string) error {
	for _, right := range looks(migration) {
		if ok, err := p.may(ctx, right); err != nil {
			return err
		} else if !ok {
			return c.lacks(p, right)
		}
	}
	return nil
}

func (c *Cluster) lacks(p *person, right Right) *Refused {
	text := fmt.Sprintf("%s may not %s %s in the namespace %s.", p.name, right.Verb, right.Resource, v1alpha1.Namespace)
	if c.Missing != nil {
		text += "\n" + c.Missing(p.name)
	}
	return &Refused{Code: http.StatusForbidden, Text: text, SignIn: true}
}

// person is who has a token.
type person struct {
	client *kube.Client
	name   string
	limit  chan struct{}
}

// ask waits for its turn, and bounds the request.
func (p *person) ask(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := p.client.Call(ctx)
	defer cancel()
	select {
	case p.limit <- struct{}{}:
		defer func() { <-p.limit }()
	case <-ctx.Done():
		return ctx.Err()
	}
	err := request(ctx)
	if apierrors.IsUnauthorized(err) {
		return &Refused{Code: http.StatusUnauthorized, Text: "The API server does not accept this token: it is wrong, or has expired.", SignIn: true}
	}
	return err
}

// who asks the API server for the name of the user.
func (p *person) who(ctx context.Context) (name string, err error) {
	err = p.ask(ctx, func(ctx context.Context) error {
		review, err := p.client.Typed.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err == nil {
			name = review.Status.UserInfo.Username
		}
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return "", &Refused{Code: http.StatusNotImplemented, Text: "The page needs Kubernetes 1.30 or later: this API server has no SelfSubjectReview."}
	case err == nil && name == "":
		err = &Refused{Code: http.StatusUnauthorized, Text: "The API server does not say whose token this is.", SignIn: true}
	}
	return name, err
}

// may asks the API server whether a person has all of some rights.
func (p *person) may(ctx context.Context, rights ...Right) (bool, error) {
	for _, right := range rights {
		allowed := false
		err := p.ask(ctx, func(ctx context.Context) error {
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: v1alpha1.Group, Version: v1alpha1.Version, Namespace: v1alpha1.Namespace, Verb: right.Verb, Resource: right.Resource, Name: right.Name}}}
			review, err := p.client.Typed.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err == nil {
				allowed = review.Status.Allowed
			}
			return err
		})
		if err != nil || !allowed {
			return false, err
		}
	}
	return true, nil
}

const (
	keepFeed = 2 * time.Minute
	// maxFeeds bounds how many migrations are read at once: each needs memory for its plan and its paths.
	maxFeeds = 3
)

// Feeds are the feeds of the migrations that people look at. Each is read while someone looks, and some time longer.
type Feeds struct {
	// Start makes the feed of a migration, and the function that reads the cluster for it until its context ends.
	Start func(ctx context.Context, migration string) (*Feed, func(context.Context), error)
	// Keep is how long a feed is read after its last viewer has gone; 0 means two minutes.
	Keep time.Duration

	lock sync.Mutex
	all  map[string]*shown
}

type shown struct {
	feed    *Feed
	viewers int
	left    int // how often the last viewer has gone
	stop    func()
}

// Open is the feed of a migration, for a viewer until it calls gone.
func (f *Feeds) Open(ctx context.Context, migration string) (feed *Feed, gone func(), err error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	one := f.all[migration]
	if one == nil {
		if len(f.all) >= maxFeeds {
			return nil, nil, &Refused{Code: http.StatusServiceUnavailable, Text: fmt.Sprintf("People look at %d other migrations, and the page has memory for no more. Try again in a few minutes.", maxFeeds)}
		}
		feed, read, err := f.Start(ctx, migration)
		if err != nil {
			return nil, nil, err
		}
		reading, cancel := context.WithCancel(context.Background())
		go read(reading) // ends with stop
		one = &shown{feed: feed, stop: cancel}
		if f.all == nil {
			f.all = map[string]*shown{}
		}
		f.all[migration] = one
	}
	one.viewers++
	return one.feed, sync.OnceFunc(func() { f.gone(migration, one) }), nil
}

// gone lets a feed end some time after its last viewer has gone.
func (f *Feeds) gone(migration string, one *shown) {
	f.lock.Lock()
	defer f.lock.Unlock()
	one.viewers--
	one.left++
	if left := one.left; one.viewers == 0 {
		time.AfterFunc(cmp.Or(f.Keep, keepFeed), func() {
			f.lock.Lock()
			defer f.lock.Unlock()
			if one.viewers == 0 && one.left == left && f.all[migration] == one {
				one.stop()
				delete(f.all, migration)
			}
		})
	}
}
