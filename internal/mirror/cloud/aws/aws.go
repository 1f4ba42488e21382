// Package aws reads the data that package cloud compares from AWS, and executes the actions of its plans: each action
// only if the resource has not changed since the plan was made.
package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/mirror/cloud"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// IAM are the calls for roles, profiles and issuers.
type IAM interface {
	ListRoles(context.Context, *iam.ListRolesInput, ...func(*iam.Options)) (*iam.ListRolesOutput, error)
	GetRole(context.Context, *iam.GetRoleInput, ...func(*iam.Options)) (*iam.GetRoleOutput, error)
	ListRolePolicies(context.Context, *iam.ListRolePoliciesInput,
		...func(*iam.Options)) (*iam.ListRolePoliciesOutput, error)
	GetRolePolicy(context.Context, *iam.GetRolePolicyInput, ...func(*iam.Options)) (*iam.GetRolePolicyOutput, error)
	PutRolePolicy(context.Context, *iam.PutRolePolicyInput, ...func(*iam.Options)) (*iam.PutRolePolicyOutput, error)
	DeleteRolePolicy(context.Context, *iam.DeleteRolePolicyInput,
		...func(*iam.Options)) (*iam.DeleteRolePolicyOutput, error)
	ListAttachedRolePolicies(context.Context, *iam.ListAttachedRolePoliciesInput,
		...func(*iam.Options)) (*iam.ListAttachedRolePoliciesOutput, error)
	AttachRolePolicy(context.Context, *iam.AttachRolePolicyInput,
		...func(*iam.Options)) (*iam.AttachRolePolicyOutput, error)
	DetachRolePolicy(context.Context, *iam.DetachRolePolicyInput,
		...func(*iam.Options)) (*iam.DetachRolePolicyOutput, error)
	UpdateAssumeRolePolicy(context.Context, *iam.UpdateAssumeRolePolicyInput,
		...func(*iam.Options)) (*iam.UpdateAssumeRolePolicyOutput, error)
	ListInstanceProfiles(context.Context, *iam.ListInstanceProfilesInput,
		...func(*iam.Options)) (*iam.ListInstanceProfilesOutput, error)
	GetInstanceProfile(context.Context, *iam.GetInstanceProfileInput,
		...func(*iam.Options)) (*iam.GetInstanceProfileOutput, error)
	CreateInstanceProfile(context.Context, *iam.CreateInstanceProfileInput,
		...func(*iam.Options)) (*iam.CreateInstanceProfileOutput, error)
	DeleteInstanceProfile(context.Context, *iam.DeleteInstanceProfileInput,
		...func(*iam.Options)) (*iam.DeleteInstanceProfileOutput, error)
	AddRoleToInstanceProfile(context.Context, *iam.AddRoleToInstanceProfileInput,
		...func(*iam.Options)) (*iam.AddRoleToInstanceProfileOutput, error)
	RemoveRoleFromInstanceProfile(context.Context, *iam.RemoveRoleFromInstanceProfileInput,
		...func(*iam.Options)) (*iam.RemoveRoleFromInstanceProfileOutput, error)
	ListOpenIDConnectProviders(context.Context, *iam.ListOpenIDConnectProvidersInput,
		...func(*iam.Options)) (*iam.ListOpenIDConnectProvidersOutput, error)
	GetOpenIDConnectProvider(context.Context, *iam.GetOpenIDConnectProviderInput,
		...func(*iam.Options)) (*iam.GetOpenIDConnectProviderOutput, error)
	CreateOpenIDConnectProvider(context.Context, *iam.CreateOpenIDConnectProviderInput,
		...func(*iam.Options)) (*iam.CreateOpenIDConnectProviderOutput, error)
	DeleteOpenIDConnectProvider(context.Context, *iam.DeleteOpenIDConnectProviderInput,
		...func(*iam.Options)) (*iam.DeleteOpenIDConnectProviderOutput, error)
}

// Policies are the calls for managed policies.
type Policies interface {
	ListPolicies(context.Context, *iam.ListPoliciesInput, ...func(*iam.Options)) (*iam.ListPoliciesOutput, error)
	GetPolicy(context.Context, *iam.GetPolicyInput, ...func(*iam.Options)) (*iam.GetPolicyOutput, error)
	GetPolicyVersion(context.Context, *iam.GetPolicyVersionInput,
		...func(*iam.Options)) (*iam.GetPolicyVersionOutput, error)
	ListPolicyVersions(context.Context, *iam.ListPolicyVersionsInput,
		...func(*iam.Options)) (*iam.ListPolicyVersionsOutput, error)
	CreatePolicyVersion(context.Context, *iam.CreatePolicyVersionInput,
		...func(*iam.Options)) (*iam.CreatePolicyVersionOutput, error)
}

// EC2 are the calls for security groups.
type EC2 interface {
	DescribeSecurityGroups(context.Context, *ec2.DescribeSecurityGroupsInput,
		...func(*ec2.Options)) (*ec2.DescribeSecurityGroupsOutput, error)
	DescribeVpcs(context.Context, *ec2.DescribeVpcsInput, ...func(*ec2.Options)) (*ec2.DescribeVpcsOutput, error)
	AuthorizeSecurityGroupIngress(context.Context, *ec2.AuthorizeSecurityGroupIngressInput,
		...func(*ec2.Options)) (*ec2.AuthorizeSecurityGroupIngressOutput, error)
	AuthorizeSecurityGroupEgress(context.Context, *ec2.AuthorizeSecurityGroupEgressInput,
		...func(*ec2.Options)) (*ec2.AuthorizeSecurityGroupEgressOutput, error)
	RevokeSecurityGroupIngress(context.Context, *ec2.RevokeSecurityGroupIngressInput,
		...func(*ec2.Options)) (*ec2.RevokeSecurityGroupIngressOutput, error)
	RevokeSecurityGroupEgress(context.Context, *ec2.RevokeSecurityGroupEgressInput,
		...func(*ec2.Options)) (*ec2.RevokeSecurityGroupEgressOutput, error)
}

// Cloud is an account in a region.
type Cloud struct {
	IAM IAM
	// Policies is nil where managed policies cannot be read: the inventory says so then.
	Policies Policies
	EC2      EC2
}

// Connect uses the same credentials and region as other AWS tools. An empty endpoint means Amazon's own.
func Connect(ctx context.Context, endpoint string) (*Cloud, error) {
	c, err := config.LoadDefaultConfig(ctx, config.WithLogger(logging.Nop{})) // what goes wrong is in errors
	if err != nil {
		return nil, fmt.Errorf("configuration of AWS: %w", err)
	}
	if c.Region == "" {
		return nil, engine.WithHint(errors.New("no region of AWS is known"),
			"set AWS_REGION, or a region in the profile")
	}
	if endpoint != "" {
		c.BaseEndpoint = &endpoint
	}
	client := iam.NewFromConfig(c)
	return &Cloud{IAM: client, Policies: client, EC2: ec2.NewFromConfig(c)}, nil
}

// Read reads the inventory. It leaves out roles of Amazon's own services.
func (c *Cloud) Read(ctx context.Context) (*cloud.Inventory, error) {
	i := &cloud.Inventory{APIVersion: v1alpha1.APIVersion, Kind: cloud.InventoryKind,
		Missing: []string{"policies of buckets, keys, queues and the like (resourcePolicies): put those that name " +
			"the original into an inventory file"}}
	for _, read := range []func(context.Context, *cloud.Inventory) error{c.roles, c.profiles,
		c.issuers, c.policies, c.groups} {
		if err := read(ctx, i); err != nil {
			return nil, explain(err)
		}
	}
	return i, i.Check()
}

// explain gives an error of the API its hint.
func explain(err error) error {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return engine.WithHint(err, "check the endpoint, the network and the credentials: aws sts get-caller-identity")
	}
	switch code := api.ErrorCode(); {
	case strings.Contains(code, "AccessDenied") || strings.Contains(code, "Unauthorized"):
		return engine.WithHint(err,
			"use credentials with that right; reading needs iam:List*, iam:Get* and ec2:Describe*")
	case strings.Contains(code, "Token") || strings.Contains(code, "AuthFailure") ||
		strings.Contains(code, "Signature") || strings.Contains(code, "Expired"):
		return engine.WithHint(err, "check the credentials: aws sts get-caller-identity")
	case strings.Contains(code, "LimitExceeded"):
		return engine.WithHint(err, "request a higher quota, or remove unused objects, and run the command again")
	}
	return engine.WithHint(err, "fix that and run the command again: changes that were made are not repeated")
}

func (c *Cloud) roles(ctx context.Context, i *cloud.Inventory) error {
	for input := (&iam.ListRolesInput{}); ; {
		page, err := c.IAM.ListRoles(ctx, input)
		if err != nil {
			return err
		}
		for _, one := range page.Roles {
			if strings.HasPrefix(aws.ToString(one.Path), "/aws-service-role/") {
				continue
			}
			role, err := c.role(ctx, one.RoleName)
			if err != nil {
				return fmt.Errorf("role %s: %w", aws.ToString(one.RoleName), err)
			}
			i.Roles = append(i.Roles, *role)
		}
		if input.Marker = page.Marker; !page.IsTruncated {
			return nil
		}
	}
}

// role reads one role: the list does not tell its boundary and tags.
func (c *Cloud) role(ctx context.Context, name *string) (*cloud.Role, error) {
	found, err := c.IAM.GetRole(ctx, &iam.GetRoleInput{RoleName: name})
	if err != nil {
		return nil, err
	}
	r := found.Role
	role := &cloud.Role{Name: aws.ToString(r.RoleName), ARN: aws.ToString(r.Arn), ID: aws.ToString(r.RoleId),
		Inline: map[string]cloud.Document{}, Tags: map[string]string{}}
	if role.Trust, err = document(r.AssumeRolePolicyDocument); err != nil {
		return nil, err
	}
	if r.PermissionsBoundary != nil {
		role.Boundary = aws.ToString(r.PermissionsBoundary.PermissionsBoundaryArn)
	}
	for _, tag := range r.Tags {
		role.Tags[aws.ToString(tag.Key)] = aws.ToString(tag.Value)
	}
	for input := (&iam.ListRolePoliciesInput{RoleName: r.RoleName}); ; {
		page, err := c.IAM.ListRolePolicies(ctx, input)
		if err != nil {
			return nil, err
		}
		for _, policy := range page.PolicyNames {
			if role.Inline[policy], err = c.inline(ctx, role.Name, policy); err != nil {
				return nil, err
			}
		}
		if input.Marker = page.Marker; !page.IsTruncated {
			break
		}
	}
	for input := (&iam.ListAttachedRolePoliciesInput{RoleName: r.RoleName}); ; {
		page, err := c.IAM.ListAttachedRolePolicies(ctx, input)
		if err != nil {
			return nil, err
		}
		for _, policy := range page.AttachedPolicies {
			role.Attached = append(role.Attached, aws.ToString(policy.PolicyArn))
		}
		if input.Marker = page.Marker; !page.IsTruncated {
			return role, nil
		}
	}
}

func document(text *string) (cloud.Document, error) {
	if aws.ToString(text) == "" {
		return "", nil
	}
	return cloud.ParseDocument(*text)
}

// inline is an inline policy, empty where there is none.
func (c *Cloud) inline(ctx context.Context, role, policy string) (cloud.Document, error) {
	found, err := c.IAM.GetRolePolicy(ctx, &iam.GetRolePolicyInput{RoleName: &role, PolicyName: &policy})
	if none(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return document(found.PolicyDocument)
}

func none(err error) bool {
	var missing *iamtypes.NoSuchEntityException
	return errors.As(err, &missing)
}

func (c *Cloud) profiles(ctx context.Context, i *cloud.Inventory) error {
	for input := (&iam.ListInstanceProfilesInput{}); ; {
		page, err := c.IAM.ListInstanceProfiles(ctx, input)
		if err != nil {
			return err
		}
		for _, one := range page.InstanceProfiles {
			i.Profiles = append(i.Profiles, profile(&one))
		}
		if input.Marker = page.Marker; !page.IsTruncated {
			return nil
		}
	}
}

func profile(p *iamtypes.InstanceProfile) cloud.Profile {
	found := cloud.Profile{Name: aws.ToString(p.InstanceProfileName)}
	for _, role := range p.Roles {
		found.Roles = append(found.Roles, aws.ToString(role.RoleName))
	}
	return found
}

func (c *Cloud) issuers(ctx context.Context, i *cloud.Inventory) error {
	list, err := c.IAM.ListOpenIDConnectProviders(ctx, &iam.ListOpenIDConnectProvidersInput{})
	if err != nil {
		return err
	}
	for _, one := range list.OpenIDConnectProviderList {
		found, err := c.IAM.GetOpenIDConnectProvider(ctx,
			&iam.GetOpenIDConnectProviderInput{OpenIDConnectProviderArn: one.Arn})
		if err != nil {
			return fmt.Errorf("issuer %s: %w", aws.ToString(one.Arn), err)
		}
		url := strings.TrimPrefix(aws.ToString(found.Url), "https://")
		i.Issuers = append(i.Issuers, cloud.Issuer{ARN: aws.ToString(one.Arn), URL: url, Clients: found.ClientIDList,
			Thumbprints: found.ThumbprintList})
	}
	return nil
}

func (c *Cloud) policies(ctx context.Context, i *cloud.Inventory) error {
	if c.Policies == nil {
		i.Missing = append(i.Missing, "managed policies")
		return nil
	}
	for input := (&iam.ListPoliciesInput{Scope: iamtypes.PolicyScopeTypeLocal}); ; {
		page, err := c.Policies.ListPolicies(ctx, input)
		if err != nil {
			return err
		}
		for _, one := range page.Policies {
			found := cloud.Policy{ARN: aws.ToString(one.Arn)}
			if found.Document, err = c.version(ctx, one.Arn, one.DefaultVersionId); err != nil {
				return fmt.Errorf("policy %s: %w", found.ARN, err)
			}
			versions, err := c.Policies.ListPolicyVersions(ctx, &iam.ListPolicyVersionsInput{PolicyArn: one.Arn})
			if err != nil {
				return fmt.Errorf("policy %s: %w", found.ARN, err)
			}
			found.Versions = len(versions.Versions)
			i.Policies = append(i.Policies, found)
		}
		if input.Marker = page.Marker; !page.IsTruncated {
			return nil
		}
	}
}

func (c *Cloud) version(ctx context.Context, arn, version *string) (cloud.Document, error) {
	found, err := c.Policies.GetPolicyVersion(ctx, &iam.GetPolicyVersionInput{PolicyArn: arn, VersionId: version})
	if err != nil {
		return "", err
	}
	return document(found.PolicyVersion.Document)
}

func (c *Cloud) groups(ctx context.Context, i *cloud.Inventory) error {
	for input := (&ec2.DescribeSecurityGroupsInput{}); ; {
		page, err := c.EC2.DescribeSecurityGroups(ctx, input)
		if err != nil {
			return err
		}
		for _, one := range page.SecurityGroups {
			group := cloud.Group{ID: aws.ToString(one.GroupId), Name: aws.ToString(one.GroupName),
				VPC: aws.ToString(one.VpcId), Tags: map[string]string{}, In: rules(one.IpPermissions),
				Out: rules(one.IpPermissionsEgress)}
			for _, tag := range one.Tags {
				group.Tags[aws.ToString(tag.Key)] = aws.ToString(tag.Value)
			}
			i.Groups = append(i.Groups, group)
		}
		if input.NextToken = page.NextToken; aws.ToString(page.NextToken) == "" {
			break
		}
	}
	for input := (&ec2.DescribeVpcsInput{}); ; {
		page, err := c.EC2.DescribeVpcs(ctx, input)
		if err != nil {
			return err
		}
		for _, one := range page.Vpcs {
			vpc := cloud.VPC{ID: aws.ToString(one.VpcId), CIDRs: []string{aws.ToString(one.CidrBlock)}}
			for _, more := range one.CidrBlockAssociationSet {
				if cidr := aws.ToString(more.CidrBlock); !slices.Contains(vpc.CIDRs, cidr) {
					vpc.CIDRs = append(vpc.CIDRs, cidr)
				}
			}
			vpc.CIDRs = slices.DeleteFunc(vpc.CIDRs, func(cidr string) bool { return cidr == "" })
			i.VPCs = append(i.VPCs, vpc)
		}
		if input.NextToken = page.NextToken; aws.ToString(page.NextToken) == "" {
			return nil
		}
	}
}

// rules are permissions, one for each peer.
func rules(permissions []types.IpPermission) []cloud.Rule {
	var all []cloud.Rule
	for _, p := range permissions {
		rule := cloud.Rule{Protocol: aws.ToString(p.IpProtocol), From: -1, To: -1}
		if p.FromPort != nil {
			rule.From = int(*p.FromPort)
		}
		if p.ToPort != nil {
			rule.To = int(*p.ToPort)
		}
		add := func(text *string, set func(*cloud.Rule)) {
			one := rule
			one.Text = aws.ToString(text)
			set(&one)
			all = append(all, one)
		}
		for _, peer := range p.IpRanges {
			add(peer.Description, func(r *cloud.Rule) { r.CIDR = aws.ToString(peer.CidrIp) })
		}
		for _, peer := range p.Ipv6Ranges {
			add(peer.Description, func(r *cloud.Rule) { r.CIDR = aws.ToString(peer.CidrIpv6) })
		}
		for _, peer := range p.UserIdGroupPairs {
			add(peer.Description, func(r *cloud.Rule) {
				r.Group = cmp.Or(aws.ToString(peer.GroupId), aws.ToString(peer.GroupName))
			})
		}
		for _, peer := range p.PrefixListIds {
			add(peer.Description, func(r *cloud.Rule) { r.PrefixList = aws.ToString(peer.PrefixListId) })
		}
	}
	return all
}
