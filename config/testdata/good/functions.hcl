# Each local shows one function; target names carry the results into the dump.
locals {
  results = {
    abs             = abs(-1)
    base64decode    = base64decode("aGk=")
    base64encode    = base64encode("hi")
    basename        = basename("/a/b.txt")
    can             = can(tonumber("x"))
    ceil            = ceil(1.2)
    chomp           = chomp("a\n")
    chunklist       = jsonencode(chunklist([1, 2, 3], 2))
    cidrhost        = cidrhost("10.0.0.0/24", 5)
    cidrsubnet      = cidrsubnet("10.0.0.0/8", 8, 2)
    coalesce        = coalesce(null, "b")
    compact         = join(",", compact(["a", "", "b"]))
    concat          = join(",", concat(["a"], ["b"]))
    contains        = contains(["a"], "a")
    csvdecode       = csvdecode("a,b\n1,2")[0].b
    dirname         = dirname("/a/b.txt")
    distinct        = length(distinct([1, 1]))
    element         = element(["a", "b"], 3)
    endswith        = endswith("abc", "bc")
    env             = env("SONDE_TEST_HOME")
    env_default     = env("SONDE_TEST_NOTHING", "none")
    file            = trimspace(file("data/motd.txt"))
    fileexists      = "${fileexists("data/motd.txt")} ${fileexists("data")}"
    flatten         = length(flatten([[1], [2, 3]]))
    floor           = floor(1.8)
    format          = format("%03d", 7)
    formatlist      = join(",", formatlist("%s!", ["a", "b"]))
    indent          = indent(2, "a\nb")
    index           = index(["a", "b"], "b")
    jsondecode      = jsondecode("{\"a\": [1, 2]}").a[1]
    jsonencode      = jsonencode({ a = 1 })
    keys            = join(",", keys({ b = 1, a = 2 }))
    log             = log(8, 2)
    lookup          = lookup({ a = 1 }, "b", 2)
    lower           = lower("ABC")
    max             = max(1, 2)
    md5             = md5("a")
    merge           = jsonencode(merge({ a = 1 }, { b = 2 }))
    min             = min(1, 2)
    nonsensitive    = nonsensitive(sensitive("seen"))
    one             = one(toset(["a"]))
    one_of_none     = one([]) == null
    parseint        = parseint("ff", 16)
    pow             = pow(2, 8)
    range           = join(",", range(0, 6, 2))
    regex           = regex("[0-9]+", "abc123")
    regexall        = length(regexall("[0-9]", "1a2"))
    replace         = replace("a-b", "-", "_")
    reverse         = join("", reverse(["a", "b"]))
    setproduct      = length(setproduct(["a", "b"], [1, 2]))
    setunion        = length(setunion(["a"], ["b"]))
    sha256          = sha256("a")
    slice           = join(",", slice(["a", "b", "c"], 1, 3))
    sort            = join(",", sort(["b", "a"]))
    split           = split("/", "a/b")[1]
    startswith      = startswith("abc", "ab")
    strrev          = strrev("abc")
    substr          = substr("abc", 1, 2)
    templatefile    = trimspace(templatefile("data/hosts.tmpl", { hosts = ["a", "b"] }))
    timeadd         = timeadd("2024-01-01T00:00:00Z", "1h")
    title           = title("abc")
    tobool          = tobool("true")
    tolist          = tolist(toset(["b", "a"]))[0]
    tomap           = tomap({ a = 1 })["a"]
    tonumber        = tonumber("7") + 1
    toset           = length(toset(["a", "a"]))
    tostring        = tostring(7)
    trim            = trim("?a?", "?")
    trimprefix      = trimprefix("abc", "a")
    trimsuffix      = trimsuffix("abc", "c")
    try             = try(jsondecode("{").x, "fallback")
    upper           = upper("abc")
    urlencode       = urlencode("a b&c")
    values          = join(",", values({ a = "x", b = "y" }))
    yamldecode      = yamldecode("a: [1, 2]").a[0]
    yamlencode      = trimspace(yamlencode({ a = 1 }))
    zipmap          = jsonencode(zipmap(["a"], [1]))
  }
}

target "results" {
  process {
    command = ["true"]
    env     = { for name, value in local.results : name => tostring(value) }
  }
}
