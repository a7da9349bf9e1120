// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// explanation is a row of the tables of reasons. For a container, result reports
// whether there is a warning.
type explanation struct{ result, meaning, action string }

var ofObjects = map[string]explanation{
	string(reason.Injected):               {"allowed", "The pod gets the identity.", ""},
	string(reason.AlreadyInjected):        {"allowed", "The pod already has the identity.", ""},
	string(reason.NoIdentity):             {"allowed", "The ServiceAccount does not ask for an identity.", "Annotate it if its pods need credentials."},
	string(reason.IdentityRequired):       {"denied, 403", "The ServiceAccount has the label `lanyard.dev/identity: required`, or the pod has `lanyard.dev/inject: \"true\"`, but no identity can be injected yet.", "Wait for the [annotation](../identity-later.md), or remove the label or `inject`."},
	string(reason.OptedOut):               {"allowed", "The pod has `lanyard.dev/inject: \"false\"`, or an [adopted](../migrate/adoption.md#both-webhooks-at-once) webhook injects it.", ""},
	string(reason.MirrorPod):              {"allowed", "The pod mirrors a static pod of a node.", ""},
	string(reason.NoContainer):            {"allowed", "The pod has no container, or its annotations exclude all of them. The guard denies the pod.", "Correct the names in the annotations."},
	string(reason.InvalidAnnotation):      {"denied, 400", "An annotation is malformed, unknown, or without effect.", "The message contains the key and the allowed form."},
	string(reason.IdentityNotAllowed):     {"denied, 403", "`lanyard.dev/allowed-identities` of the namespace, or `--default-allowed-identities`, does not allow the identity.", "Ask the administrator of the cluster, or correct the ServiceAccount."},
	string(reason.ForeignInjection):       {"denied, 400", "The manifest was copied from a running pod with another identity.", "Remove the annotations and the label that [Lanyard writes](annotations.md#written-by-lanyard), the token volume, its mounts and the variables."},
	string(reason.InvalidMountPath):       {"denied, 400", "A container has a device at the token mount path, or a volume whose path is spelled differently, such as `/run` for `/var/run`.", "Write the path as in the message, or use `lanyard.dev/skip-containers`."},
	string(reason.VolumeNameTaken):        {"denied, 400; or a warning", "The pod uses both names of the token volume, or the name of a [copy](../migrate/adoption.md), for something else.", "Rename one of the volumes."},
	string(reason.TooLarge):               {"denied, 400", "The pod has more than 512 containers, very long lists, or too many variables, or the identities add too much to each container.", "Make the pod smaller, or use fewer providers and shorter names."},
	string(reason.ServiceAccountNotFound): {"fault, 503", "The ServiceAccount does not exist.", "Create it."},
	string(reason.LookupFailed):           {"fault, 503; denied, 500, for a namespace", "The ServiceAccount or the namespace could not be read.", "Retry. If it keeps happening, check the [permissions](../operations/README.md#rights)."},
	string(reason.Overloaded):             {"fault, 503", "Other requests use all memory.", "Find out [who sends them](../concepts/security.md), or add replicas."},
	string(reason.InvalidReview):          {"fault, 503 or 400; denied, 400", "The request or its object has an unexpected kind or field type.", "Compare the webhook configuration with `deploy/`."},
	string(reason.InternalError):          {"fault, 503", "Lanyard has a bug.", "Report it with the log line."},
	string(reason.Labeled):                {"allowed", "The label `lanyard.dev/identity` of a ServiceAccount is correct, or was corrected.", ""},
	string(reason.Adopted):                {"allowed", "[Another program's](../migrate/adoption.md) annotations were translated.", ""},
	string(reason.Mapped):                 {"allowed", "A [mapping](../providers.md#map-serviceaccounts-to-identities) annotated the ServiceAccount.", ""},
	string(reason.Valid):                  {"allowed", "The ServiceAccount is valid.", ""},
}

var ofContainers = map[string]explanation{
	string(reason.EnvironmentIncomplete): {"yes", "The ServiceAccount asks only for a token (`lanyard.dev/tokens: aws`), and the container does not set `AWS_ROLE_ARN`. It gets the token but no variables, with which SDKs would fail.", "Set the variable, unless the program reads the token file itself."},
	string(reason.NotVerified):           {"yes", "The ServiceAccount has the annotation `verify`, but the cluster has no image for it, the pod is for Windows, or another container has the name of the one that verifies.", "See [verified start](../verify.md)."},
	string(reason.PodNameUnusable):       {"yes", "The name of the pod is too short or too long for an AWS session name, so the default is used.", "Use a shorter name."},
	string(reason.ContainerNotSelected):  {"no", "`lanyard.dev/containers` or `lanyard.dev/skip-containers` excludes it, or an [adopted](../migrate/adoption.md#both-webhooks-at-once) webhook overwrites it.", ""},
	string(reason.ContainerNotFound):     {"yes", "One of these annotations names a container that the pod does not have. The message suggests a name.", "Correct it, unless another webhook adds that container."},
	string(reason.EnvironmentTaken):      {"yes", "The container sets its own token or credentials file, such as `AWS_WEB_IDENTITY_TOKEN_FILE`, so it gets none of that provider's variables.", "Remove the variable to use the injected identity."},
	string(reason.EnvironmentShadowed):   {"yes", "SDKs may prefer a variable of the container, such as `AWS_ACCESS_KEY_ID`, to the injected identity, or the container sets one that they need, such as `AWS_ROLE_ARN`, to an empty value.", "Remove the variable."},
	string(reason.MountPathTaken):        {"yes", "Something else is mounted at or below the path of the token or its copy, or a read-only volume above it. The container gets no identity, or no copy.", "Mount it elsewhere."},
	string(reason.VolumeMissing):         {"yes", "An ephemeral container was added to a pod without the current identity of its ServiceAccount.", "Recreate the pod."},
}

func objectReasons() (string, error) {
	return reasonTable("Result", ofObjects, ofContainers)
}

func containerReasons() (string, error) {
	return reasonTable("Warning", ofContainers, ofObjects)
}

// reasonTable lists the reasons that are explained in texts. The other table must
// explain the rest.
func reasonTable(column string, texts, rest map[string]explanation) (string, error) {
	t := newTable("Reason", column, "Meaning, and what to do")
	var names []string
	for _, r := range reason.All() {
		name := string(r)
		e, found := texts[name]
		if _, other := rest[name]; found == other {
			return "", fmt.Errorf("want one text about %s", name)
		}
		if found {
			names = append(names, name)
			t.row(code(name), e.result, strings.TrimSpace(e.meaning+" "+e.action))
		}
	}
	slices.Sort(names)
	return t.String(), unused(texts, names)
}
