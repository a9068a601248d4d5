"""Runs of a type of transformers on the meta device, where tensors have shapes but no bytes.

Type builds a configuration and runs it; the recorder notes each storage that is made and freed, and where: the module and the
line. A probe is one run's record. explore() chooses the configurations: the base with few layers, values changed one at a time
and in many.

Attention is a function that allocates its result alone, as FlashAttention does."""
import itertools, os, random, re, signal, sys, time, warnings, weakref
import torch, transformers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers.models.auto import modeling_auto as auto

warnings.filterwarnings('ignore')
transformers.logging.set_verbosity_error()
MAPS = dict(causal='MODEL_FOR_CAUSAL_LM_MAPPING_NAMES', vlm='MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES',
            s2s='MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES', speech='MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES',
            base='MODEL_MAPPING_NAMES', masked='MODEL_FOR_MASKED_LM_MAPPING_NAMES', ctc='MODEL_FOR_CTC_MAPPING_NAMES',
            detection='MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES', image='MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES',
            segmentation='MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES',
            sequence='MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES')
# Values that change no shape.
IGNORE = re.compile(r'(token_id|_token_index|initializer|transformers_version|max_length|num_beams|chunk_size_feed|return_|'
                    r'output_(att|hid|past)|use_cache|torchscript|is_encoder_decoder|problem_type|drop|eps$|epsilon|temperature|'
                    r'min_length|num_return|diversity|bos|eos|pad_token|id2label|label2id|pretraining_tp|router_jitter|aux_loss|'
                    r'loss_|_id$|rope_theta|_range$|_std$|softcap|scaling$|rope_parameters|dtype|_factor_min|gradient_check|'
                    r'_init|init_|mask_time|mask_feature|_coef|_cost|_threshold|ctc_|mlm_|norm_topk|'
                    r'tie_word|architectures|model_type|scale_factor|_bias$|use_bias|_act$|_fn$|'
                    r'activation)')
LAYERS = re.compile(r'(^|\.)(num_hidden_layers|n_layers?|num_layers|encoder_layers|decoder_layers|num_decoder_layers|'
                    r'num_encoder_layers|num_block|num_blocks|depth)$')
POSITIONS = re.compile(r'(^|\.)(max_position_embeddings|n_positions|n_ctx|max_target_positions|max_seq_len|'
                       r'max_sequence_length|seq_length|max_seq_length)$')
OTHER_PART = re.compile(r'(^|\.)(vision\w*|audio\w*|image\w*|speech\w*|perceiver\w*|qformer\w*|vit\w*|code\w*|vq\w*|sam\w*|'
                        r'protein\w*|tower\w*|video\w*|projector\w*|talker\w*|token2wav\w*)\.')
GLM_ROPE = {'rope_type': 'default', 'rope_theta': 10000.0, 'partial_rotary_factor': 0.5, 'mrope_section': [8, 12, 12]}
# Values without which a type's own configuration cannot run.
PRESETS = {'deepseek_v2': {'num_experts_per_tok': 6, 'moe_intermediate_size': 1408}, 'hunyuan_v1_dense': {'head_dim': 128},
           'hunyuan_v1_moe': {'head_dim': 128}, 'ministral': {'head_dim': 128}, 'nemotron': {'num_key_value_heads': 8},
           'dots1': {'n_routed_experts': 128, 'n_shared_experts': 2, 'num_experts_per_tok': 6},
           'granitemoehybrid': {'num_hidden_layers': 2, 'layer_types': ['mamba', 'attention']},
           'lfm2_moe': {'num_hidden_layers': 4, 'layer_types': ['conv', 'conv', 'full_attention', 'conv']},
           'dbrx': {'attn_config.rope_theta': 500000.0},
           'hunyuan_vl': {'text_config.head_dim': 128}, 'hunyuan_vl_text': {'head_dim': 128}}
for name in ('glm4v', 'glm4v_moe', 'glm46v', 'glm_image', 'glmga'):
    PRESETS[name] = {'text_config.head_dim': 128, 'text_config.rope_parameters': GLM_ROPE}
    PRESETS[name + '_text'] = {'head_dim': 128, 'rope_parameters': GLM_ROPE}
LATER = 'later'
ITEMS = 8  # most of a list whose items are values of their own: hidden_sizes[0]
SAMPLES = 320  # of sound, for a token: 20 ms at 16 kHz
BASE_S, BASE_B = 512, 3
SLOW, FEW_TOKENS = .4, 40  # seconds of a step of BASE_S tokens; the tokens of types that are slower: each takes a loop
LOADS = [(2, 512), (3, 768), (3, 6144), (1, 256), (2, 200), (1, 64), (2, 1536), (5, 512), (1, 4096), (2, 6144), (2, 1000)]
NAMES = re.compile(r'(?<=[._])(\d+)(?=[._]|$)')


def flash(module, query, key, value, attention_mask=None, scaling=None, dropout=0.0, **kw):
    return query.new_empty((query.shape[0], query.shape[2], query.shape[1], value.shape[3])), None


transformers.AttentionInterface.register('metaonly', flash)


class Slow(Exception):
    pass


def alarm(*_):
    raise Slow()


def flatten(c, prefix=''):
    out = {}
    for k, v in c.items():
        if not isinstance(k, str) or IGNORE.search(k):
            continue
        if isinstance(v, dict):
            out.update(flatten(v, prefix + k + '.'))
        elif isinstance(v, (list, tuple)) and 0 < len(v) <= ITEMS and all(type(x) is int for x in v):
            out.update({'%s%s[%d]' % (prefix, k, i): x for i, x in enumerate(v)})
        else:
            out[prefix + k] = v
    return out


def line():
    """The line of transformers that runs: (file, line)."""
    f = sys._getframe(3)
    while f is not None:
        name = f.f_code.co_filename
        if '/transformers/' in name:
            return os.path.basename(name), f.f_lineno
        f = f.f_back
    return '', 0


class Recorder(TorchDispatchMode):
    """Records each storage that is made and freed while it is entered, in order."""

    def __init__(self, known, names):
        super().__init__()
        self.known = {t.untyped_storage()._cdata for t in known}
        self.names = names
        self.modules = []
        self.events = []  # (+, number, bytes, shape, dtype, op, place) or (-, number)
        self.live = {}  # storages by their address, which others have after them: number
        self.made = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        place = self.place()
        if func is torch.ops.aten._local_scalar_dense.default:  # a mask is all ones, a length or an index is the least
            return True if args[0].dtype == torch.bool else 0
        out = func(*args, **(kwargs or {}))
        for t in tree_leaves(out):
            if not isinstance(t, torch.Tensor):
                continue
            s = t.untyped_storage()
            k = s._cdata
            if k in self.known or k in self.live:
                continue
            self.made += 1
            self.live[k] = self.made
            name = func._overloadpacket.__name__
            self.events.append((1, self.made, s.nbytes(), tuple(t.shape), str(t.dtype)[6:], name) + place)
            weakref.finalize(s, self.free, k)
        return out

    def place(self):
        return ((self.modules[-1] if self.modules else '',) + line(),)

    def free(self, k):
        self.events.append((-1, self.live.pop(k, None)))

    def enter(self, module, _):
        self.modules.append(self.names.get(module, ''))

    def leave(self, module, _, __):
        if self.modules:
            self.modules.pop()


def cache_storages(out):
    found = set()

    def walk(o, depth=0):
        if isinstance(o, torch.Tensor):
            found.add(o.untyped_storage()._cdata)
        elif isinstance(o, (list, tuple)):
            for x in o:
                walk(x, depth + 1)
        elif isinstance(o, dict):
            for x in o.values():
                walk(x, depth + 1)
        elif hasattr(o, '__dict__') and depth < 9:
            walk(vars(o), depth + 1)

    for name in ('past_key_values', 'cache_params', 'state', 'mems'):
        walk(getattr(out, name, None))
    return found


def image_shape(c):
    for s in (c, getattr(c, 'vision_config', None), getattr(c, 'backbone_config', None)):
        size = getattr(s, 'image_size', None)
        if size:
            size = size if isinstance(size, (list, tuple)) else (size, size)
            return getattr(s, 'num_channels', None) or 3, size[0], size[-1]
    return 3, 224, 224


def inputs(kind, c, m, B, S, more):
    """What the model is called with, and what it may need beside it; the keywords that it does not take are left out."""
    dtype = next(m.parameters()).dtype
    given = main_inputs(kind, c, m, B, S)
    for name in more:
        if name == 'pixel_values':
            given[name] = torch.zeros((B,) + image_shape(c), dtype=dtype, device='meta')
        elif name == 'bbox':
            given[name] = torch.zeros((B, S, 4), dtype=torch.long, device='meta')
        elif name == 'decoder_input_ids':
            given[name] = torch.zeros((B, S), dtype=torch.long, device='meta')
    return given


def main_inputs(kind, c, m, B, S):
    ids = torch.zeros((B, S), dtype=torch.long, device='meta')
    dtype = next(m.parameters()).dtype
    main = getattr(m, 'main_input_name', 'input_ids')
    if kind == 'speech' and main == 'input_features':
        mel = getattr(c, 'num_mel_bins', None)
        source = getattr(c, 'max_source_positions', None)
        if type(m).__name__.startswith('Whisper'):
            x = torch.zeros((B, mel, 2 * source), dtype=dtype, device='meta')
        else:
            x = torch.zeros((B, S, getattr(c, 'input_feat_per_channel', mel or 80)), dtype=dtype, device='meta')
        return dict(input_features=x, decoder_input_ids=ids, use_cache=True)
    if kind == 'speech' and main == 'input_values':
        return dict(input_values=torch.zeros((B, SAMPLES * S), dtype=dtype, device='meta'), decoder_input_ids=ids, use_cache=True)
    if kind in ('causal', 'vlm'):
        return dict(input_ids=ids, use_cache=True, logits_to_keep=1)
    if kind in ('s2s', 'speech'):
        return dict(input_ids=ids, decoder_input_ids=ids, use_cache=True)
    if main == 'pixel_values':
        shape = image_shape(c)
        return dict(pixel_values=torch.zeros((B,) + shape, dtype=dtype, device='meta'))
    if main == 'input_values' and hasattr(c, 'frequency_stride'):  # a spectrogram of one length
        return dict(input_values=torch.zeros((B, c.max_length, c.num_mel_bins), dtype=dtype, device='meta'))
    if main == 'input_values':
        return dict(input_values=torch.zeros((B, SAMPLES * S), dtype=dtype, device='meta'))
    if main == 'input_features':
        for k in ('num_mel_bins', 'feature_size', 'feature_projection_input_dim', 'input_size', 'num_mels'):
            mel = getattr(c, k, None)
            if mel:
                break
        return dict(input_features=torch.zeros((B, S, mel or 80), dtype=dtype, device='meta'))
    if main != 'input_ids':
        raise ValueError('input ' + main)
    return dict(input_ids=ids)


class Type:
    goes_far = True  # whether explore() has runs with one value far beyond the others

    def __init__(self, kind, t):
        names = getattr(auto, MAPS[kind])[t]
        self.arch = names if isinstance(names, str) else names[0]
        self.C, self.kind, self.t = getattr(transformers, self.arch), kind, t
        self.base = transformers.AutoConfig.for_model(t).to_dict()
        self.attentions = 'metaonly', 'eager'
        self.has_stages = any(k.endswith('[2]') for k in flatten(self.base))
        self.attention = 'metaonly'
        self.unused = set()  # keywords that the model does not take
        self.more = ()  # inputs that it needs beside the main one

    def nest(self, over):
        out = {}
        for k, v in over.items():
            d, b = out, self.base
            for p in k.split('.')[:-1]:
                b = b.get(p) or {}
                d = d.setdefault(p, {'model_type': b['model_type']} if 'model_type' in b else {})
            name, _, item = k.split('.')[-1].partition('[')
            if item:
                d[name] = list(d.get(name) or b.get(name))
                d[name][int(item[:-1])] = v
            else:
                d[name] = v
        return out

    def place(self, module):
        """A module's name without numbers; the first of several stays where stages have sizes of their own."""
        first = NAMES.search(module) if self.has_stages else None
        end = first.end() if first and NAMES.search(module, first.end()) else 0
        return module[:end] + NAMES.sub('{}', module[end:])

    def build(self, over, dtype=torch.bfloat16):
        c = transformers.AutoConfig.for_model(self.t, **self.nest(over))
        torch.set_default_dtype(dtype)
        try:
            with torch.device('meta'):
                c._attn_implementation = self.attention
                return c, self.C._from_config(c).eval()
        finally:
            torch.set_default_dtype(torch.float32)

    def run(self, over, B, S, dtype=torch.bfloat16, seconds=20):
        signal.setitimer(signal.ITIMER_PROF, seconds)  # of its own time, not of a busy machine
        try:
            c, m = self.build(over, dtype)
            names = {mod: self.place(n) for n, mod in m.named_modules()}
            while True:
                kw = {k: v for k, v in inputs(self.kind, c, m, B, S, self.more).items() if k not in self.unused}
                known = list(m.parameters()) + list(m.buffers()) + list(x for x in kw.values() if isinstance(x, torch.Tensor))
                r = Recorder(known, names)
                hooks = [torch.nn.modules.module.register_module_forward_pre_hook(r.enter),
                         torch.nn.modules.module.register_module_forward_hook(r.leave)]
                try:
                    with torch.no_grad(), r:
                        out = m(**kw)
                    cache, events = {r.live.get(k) for k in cache_storages(out)}, list(r.events)
                    del out
                    break
                except TypeError as e:
                    x = re.search(r"unexpected keyword argument '(\w+)'", str(e))
                    if not x or x.group(1) not in kw:
                        raise
                    self.unused.add(x.group(1))
                finally:
                    for h in hooks:
                        h.remove()
            return Probe(over, dict(flatten(c.to_dict()), B=B, S=S), events, cache)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def candidates(self, key, value):
        return candidates(key, value)

    def enough(self, key, _):
        return 2 if LAYERS.search(key) else 1

    def smallest(self):
        return smallest(self)

    def tensors(self, over):
        _, m = self.build(over)
        return {NAMES.sub('{}', n): tuple(p.shape) for n, p in m.named_parameters()}


class Probe:
    def __init__(self, over, flat, events, cache):
        self.over, self.flat, self.events, self.cache = over, flat, events, cache
        self.places = {}  # place: most bytes beside the cache
        self.peak = self.peak_place = None
        live, now, held, best = {}, 0, 0, 0
        for e in events:
            if e[0] > 0:
                live[e[1]] = e
                if e[1] in cache:
                    held += e[2]
                now += e[2]
                if now > best:
                    best, self.peak_place = now, e[6]
            else:
                e = live.pop(e[1], None)
                if e:
                    now -= e[2]
                    if e[1] in cache:
                        held -= e[2]
        self.cache_bytes = held
        self.peak = best - held
        self.mark = hash(tuple((e[3], e[4], e[6]) if e[0] > 0 else 0 for e in events))

    def look(self, places):
        """What lives at these places when most does: {place: (bytes, [(dtype, module, op, shape, bytes)], cache is empty)}. What
        the module itself has yet to add to the cache, which counts as a whole, is less: op LATER."""
        live, now, held, best = {}, 0, 0, {}
        for when, e in enumerate(self.events):
            if e[0] > 0:
                live[e[1]] = e
                if e[1] in self.cache:
                    held += e[2]
                else:
                    now += e[2]
                p = e[6]
                if p in places and now + held >= best.get(p, (0, 0))[1]:
                    best[p] = (now, now + held, [x for x in live.values() if x[1] not in self.cache], held, when)
            else:
                e = live.pop(e[1], None)
                if e:
                    if e[1] in self.cache:
                        held -= e[2]
                    else:
                        now -= e[2]
        found = {}
        for p, (now, _, there, held, when) in best.items():
            is_early = held == 0 and self.cache_bytes > 0
            later = [] if is_early else [x for x in self.events[when + 1:] if x[0] > 0 and x[1] in self.cache and
                                         x[6][0] and p[0].startswith(x[6][0])]
            found[p] = (now - sum(x[2] for x in later), [(x[4], x[6], x[5], x[3], x[2]) for x in there] +
                        [(x[4], x[6], LATER, x[3], x[2]) for x in later], is_early)
        return found


WORDS = {'feed_forward_proj': ('relu', 'gated-gelu'), 'layer_type': ('basic', 'bottleneck')}  # of sizes, by keys


def candidates(k, v):
    if isinstance(v, str):
        return [w for w in WORDS.get(k, ()) if w != v]
    if isinstance(v, bool):
        return [not v]
    if isinstance(v, int):
        if LAYERS.search(k):
            return [v + 1, v + 2, v * 2, v * 3]
        return [x for x in (v * 2, v // 2, v * 3, v + 1, v * 4, v - 1, v + 7, 1, 2, 4) if x != v and x > 0]
    if isinstance(v, float):
        return [v * 2, v / 2]
    if v is None and re.search(r'(size|dim|heads|rank|inner|kernel|experts|d_ff|kv|_lora|width)', k):
        return [64, 2, 128, 8]
    return []


def every(c, prefix=''):
    for k, v in c.items():
        if isinstance(v, dict):
            yield from every(v, prefix + str(k) + '.')
        else:
            yield prefix + str(k), v


def kinds(T, over):
    """The kinds of layers that a configuration names, and the last one's: with a whole cache its places are the most."""
    c = transformers.AutoConfig.for_model(T.t, **T.nest(over))
    named = getattr(c, 'layer_types', None) or getattr(getattr(c, 'text_config', None), 'layer_types', None) or ['']
    return set(named), named[-1]


def smallest(T):
    """The base configuration: few layers, of all kinds."""
    flat = flatten(T.base)
    keys = [k for k, v in flat.items() if LAYERS.search(k) and isinstance(v, int) and not isinstance(v, bool)]
    over = dict(PRESETS.get(T.t, {}))
    for k, v in every(T.base):  # room for the tokens of all runs
        if POSITIONS.search(k) and type(v) is int and 0 < v < 8192:
            try:
                T.tensors({**over, k: 8192})
                over[k] = 8192
            except Exception:
                pass
    for k in keys:
        if flat[k] > 8:
            try:
                T.tensors({**over, k: 8})
                over[k] = 8
            except Exception:
                pass
    full = T.tensors(over)
    for n in (2, 3, 4, 6):
        o = {**over, **{k: min(n, over.get(k, flat[k])) for k in keys}}
        try:
            if T.tensors(o) == full and kinds(T, o) == kinds(T, PRESETS.get(T.t, {})):
                over = o
                break
        except Exception:
            pass
    for k, v in flat.items():  # groups of heads differ from heads
        if re.search(r'(key_value_heads|kv_heads|n_head_kv)$', k) and isinstance(v, int) and v % 2 == 0:
            heads = [flat[q] for q in flat if re.search(r'(attention_heads|n_heads?|num_heads)$', q) and
                     q.rpartition('.')[0] == k.rpartition('.')[0]]
            if v in heads:
                try:
                    T.run({**over, k: v // 2}, 1, 64)
                    over[k] = v // 2
                except Exception:
                    pass
    return over


MORE = ((), ('pixel_values',), ('decoder_input_ids',), ('bbox',), ('pixel_values', 'bbox'), ('pixel_values', 'decoder_input_ids'))


def first_run(T, whole=True):
    """The base configuration and its run, with the attention and the inputs that the type needs."""
    first = None
    few = {k: min(v, 4) for k, v in flatten(T.base).items() if LAYERS.search(k) and type(v) is int}
    for T.more, T.attention in itertools.product(MORE, T.attentions):
        try:
            T.few = {**few, **PRESETS.get(T.t, {})}
            try:
                T.run(T.few, 1, 64)
            except Exception:
                T.few = PRESETS.get(T.t, {})
                T.run(T.few, 1, 64)
            if not whole:
                return None
            over = T.smallest()
            return over, T.run(over, BASE_B, BASE_S, seconds=60)
        except (KeyError, AttributeError, TypeError, ValueError, IndexError, RuntimeError) as e:
            first = first or e
    raise first


def has_groups(flat):
    """Whether heads of keys and values are no more than the heads."""
    return not any(re.search(r'num_key_value_heads$', k) and type(v) is int and
                   v > (flat.get(k.replace('num_key_value_heads', 'num_attention_heads')) or v) for k, v in flat.items())


def others(T, p0, good, rnd, count, loads):
    """Runs of configurations further from the base: values by quarters to eightfold."""
    found, over = [], p0.over
    for _ in range(3 * count):
        o, share = dict(over), rnd.choice((.15, .3, .5))
        for k, g in good.items():
            if rnd.random() > share:
                continue
            for q in (k if isinstance(k, tuple) else (k,)):
                v = p0.flat[q]
                wide = type(v) is int and v > 1 and not LAYERS.search(q)
                if wide:
                    o[q] = max(1, rnd.choice((v // 4, v // 2, v * 2, v * 3, v * 4, v * 8)))
                else:
                    o[q] = v * 2 if isinstance(k, tuple) else rnd.choice(g)
        try:
            p = T.run(o, *rnd.choice(loads), seconds=8)
        except Exception:
            continue
        if has_groups(p.flat):
            found.append(p)
        if len(found) == count:
            break
    return found


FAR = 16  # times a value


def far_probes(T, p0, good, end):
    """Runs with one value far beyond the others, or all others far below it: the places that grow with it are the peak there,
    however small they are in the type's own configuration. Of one token, scores over the vocabulary are. And the values for
    which there was no time."""
    found, late = [], []
    sizes = [k for k in good if type(k) is str and type(p0.flat[k]) is int and p0.flat[k] > 3 and not LAYERS.search(k)]
    tries = [(None, [({k: p0.flat[k] * times for k in sizes if 'vocab' in k}, BASE_B, 1)]) for times in (1, FAR)]
    for k in sizes:
        heads = k.replace('num_key_value_heads', 'num_attention_heads')
        tries.append((k, [({q: p0.flat[q] * FAR for q in {k, heads} if q in p0.flat}, 1, p0.flat['S']),
                          ({q: max(1, p0.flat[q] // 4) for q in sizes if q not in (k, heads)}, 1, p0.flat['S'])]))
    for k, first in tries:
        if time.process_time() > end:
            late.append(k)
            continue
        for over, B, S in first:
            try:
                p = T.run({**p0.over, **over}, B, S)
            except Exception:
                continue
            if has_groups(p.flat):
                found.append(p)
                break
    return found, late


def explore(T, seconds=20, combos=10):
    kind, start = T.kind, time.process_time()
    over, p0 = first_run(T)
    took = time.process_time()
    p0 = T.run(over, BASE_B, BASE_S, seconds=60)
    took = time.process_time() - took
    S = BASE_S
    if took > SLOW:
        S, own = FEW_TOKENS, ((1, 2 * FEW_TOKENS), (2, FEW_TOKENS // 2))
        loads = [(b, max(8, s * S // BASE_S)) for b, s in LOADS if s <= 1024]
        p0 = T.run(over, BASE_B, S, seconds=60)
    else:
        loads = [x for x in LOADS if x[1] * took < 2048]  # long ones only where time does not grow with tokens
        own = (1, 1000), (2, 200)
    probes, owner, good, stuck, late = [p0], [None], {}, [], []
    for b, s in own:  # the type's own values
        try:
            probes.append(T.run(T.few, b, s))
            owner.append(None)
        except Exception:
            pass
    for b, s in loads[:6]:
        probes.append(T.run(over, b, s))
        owner.append({'B'} if s == S else {'S'} if b == BASE_B else {'B', 'S'})
    for k, v in p0.flat.items():
        if k in 'BS' or (kind in ('causal', 'vlm') and not T.more and OTHER_PART.search(k)):
            continue
        if time.process_time() - start > seconds:
            late += [k] if type(v) is int and v > 1 else []
            continue
        found, same, failed = [], 0, 0
        for x in T.candidates(k, v):
            if len(found) >= T.enough(k, v) or same >= 1 or failed >= 4:
                break
            try:
                p = T.run({**over, k: x}, BASE_B, S)
            except Exception:
                failed += 1
                continue
            if p.mark == p0.mark:
                same += 1
                continue
            found.append(x)
            probes.append(p)
            owner.append({k})
        if found:
            good[k] = found
        elif failed and not same and isinstance(v, int) and v > 1:
            stuck.append(k)
    for a, b in itertools.combinations(stuck[:5] + [k for k in good if re.search('head|hidden|dim|size', k)][:6], 2):
        if (a not in stuck and b not in stuck) or time.process_time() - start > seconds:
            continue
        va, vb = p0.flat[a], p0.flat[b]
        if type(va) is not int or type(vb) is not int:
            continue
        try:
            p = T.run({**over, a: va * 2, b: vb * 2}, BASE_B, S)
        except Exception:
            continue
        if p.mark != p0.mark:
            probes.append(p)
            owner.append({a, b})
            good.setdefault((a, b), [2])
    far, too_late = far_probes(T, p0, good, start + seconds * 1.5) if T.goes_far else ([], [])
    first_far = len(probes)
    probes += far
    owner += [None] * len(far)
    rnd, done, tries = random.Random(1), 0, 0
    while done < combos and tries < 3 * combos and time.process_time() - start < seconds * 2:
        tries += 1
        o, share = dict(over), rnd.choice((.3, .6, 1))
        for k, g in good.items():
            if rnd.random() > share:
                continue
            if isinstance(k, tuple):
                for q in k:
                    o[q] = p0.flat[q] * 2
            else:
                o[k] = rnd.choice(g)
        try:
            p = T.run(o, *rnd.choice(loads))
        except Exception:
            continue
        probes.append(p)
        owner.append(None)
        done += 1
    info = dict(seconds=round(time.process_time() - start, 1), probes=len(probes), combos=done, stuck=stuck,
                late=late + too_late, far=[first_far, len(far)])
    return probes, owner, good, loads, info


def types(words):
    for w in words:
        kind, _, t = w.partition('.')
        for x in ([t] if t else getattr(auto, MAPS[kind])):
            yield kind, x
